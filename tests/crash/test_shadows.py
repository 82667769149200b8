"""Shadows that come, change and go between runs, killed amid: their rows are
those of a job that judges by their policies, and the live ones are those of a run without any."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.engine.operators import operators
from app.run.service import run
from app.tables import policy_log
from app.tables.definitions import TABLES
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


def alone(place: Shadowed, name: str) -> Rows:
    """The rows of the jobs under the policies of a shadow, over the archive."""
    settings = place.settings
    return at_once(settings, operators(settings, settings.jobs, log=place.logs()[name].log))


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
