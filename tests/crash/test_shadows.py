"""Shadows that come, change and go between runs, killed amid: their rows are
those of a job that judges by their policies, and the live ones are those of a run without any."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from app.engine.operators import operators
from app.run.service import run
from app.tables import policy_log
from app.tables.definitions import TABLES
from state.engine.blobs import Blob
from state.engine.job import Job, Step
from state.engine.reach import Reach
from tests.crash.killed_run import ALL
from tests.crash.policy_change import (
    QUERY,
    Place,
    Rows,
    assert_as_at_once,
    at_once,
    shadow_rows,
)
from tests.crash.service import killed_at

TIME = TABLES["throttle_events"].schema.names.index("ts_wall_ms")


class Shadowed(Place):
    """A stream whose configuration has shadows."""

    def shadows(self, **shares: float) -> None:
        """Let the shadows be these: the policies of the trace with rates of such a share each."""
        found: dict[str, Any] = yaml.safe_load(self.config.read_text())
        found["shadows"] = {"same": "policies", **{name: f"{name}.yaml" for name in shares}}
        for name, share in shares.items():
            (self.folder / f"{name}.yaml").write_text(self.documents(share))
        self.config.write_text(yaml.safe_dump(found))

    def logs(self) -> dict[str, policy_log.ShadowLog]:
        """What the shadows have judged by."""
        kept = policy_log.load(self.settings.location, QUERY)
        return {} if kept is None else kept.shadows


@dataclass
class Deaf:
    """A job to whom the stream brings no policies of some names: a shadow judges by its own."""

    job: Job
    names: set[tuple[str, str]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.job, name)

    def step(self, state: bytes | None, blobs: Sequence[bytes], reach: Reach) -> Step:
        """That of the job without the records of these policies."""
        return self.job.step(state, [self._heard(blob) for blob in blobs], reach)

    def _heard(self, blob: bytes) -> bytes:
        records = Blob(blob)
        if "policy_json" not in records.columns():
            return blob
        texts = records.texts().to_pylist()
        documents = [
            json.loads(texts[policy]) if policy >= 0 else {}
            for policy in records.values(("policy_json",))[0].tolist()
        ]
        kept = [(found.get("scope"), found.get("name")) not in self.names for found in documents]
        return records.filtered(np.array(kept))


def alone(place: Shadowed, name: str) -> Rows:
    """The rows of the jobs under the policies of a shadow, over the archive."""
    settings = place.settings
    group = operators(settings, settings.jobs, log=place.logs()[name].log)
    names = {(policy["scope"], policy["name"]) for policy in place.trace.policies}
    return at_once(
        settings, {job: replace(each, job=Deaf(each.job, names)) for job, each in group.items()}
    )


@pytest.mark.slow
def test_shadows_come_change_and_go_killed(tmp_path: Path) -> None:
    place = Shadowed(tmp_path)
    place.shadows(tight=0.25, gone=0.5)
    place.come(0.4)
    assert run(place.settings, available_now=True) == 0
    assert place.logs().keys() == {"same", "tight", "gone"}
    gone = shadow_rows(place.settings, "gone")
    assert gone["throttle_events"]

    place.shadows(tight=0.125, late=0.25)
    place.limit(0.5)
    place.come(0.6)
    for step, number in (("after", 2), ("inside", 12)):
        killed_at(place.config, ALL, step, number)
    place.come(0.7)
    assert run(place.settings, available_now=True) == 0
    assert place.logs().keys() == {"same", "tight", "late"}
    assert [one.number for one in place.logs()["tight"].log.taken] == [0, 1]
    assert place.logs()["late"].batch > 0

    place.come(1.0)
    assert run(place.settings, available_now=True, drain=True) == 0

    assert_as_at_once(place)
    assert shadow_rows(place.settings, "gone") == gone
    tight = alone(place, "tight")
    for name, rows in shadow_rows(place.settings, "tight").items():
        assert rows == tight.get(name, []), name
    late, since = alone(place, "late"), place.logs()["late"].log.taken[-1].since_ms
    assert since is not None
    for name, rows in shadow_rows(place.settings, "late").items():
        every = Counter(late.get(name, []))
        assert Counter(rows) <= every, name
        assert Counter(row for row in every if int(row[TIME]) >= since) <= Counter(rows), name
    assert tight["throttle_events"] != late["throttle_events"]
