"""What tests share of policy change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from deltalake import DeltaTable

from app.config.settings import Settings, load_settings
from app.engine.operators import Operator, live_operators
from app.tables import policy_log
from app.tables.definitions import TABLES
from app.whatif.replay import replayed
from benchmarks.generator.write import write_files
from state.engine.table import WHOSE
from tests.support.traces import NOT_COMPARED, punctual_trace, rows_of

EVENTS = 20_000
QUERY = "govern"
Rows = dict[str, list[tuple[Any, ...]]]


class Place:
    """A stream that comes in parts, and a configuration whose policies change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trace = punctual_trace(EVENTS)
        write_files(self.trace, folder / "all")
        self._files = sorted((folder / "all").iterdir())
        self._came = 0
        (folder / "events").mkdir()
        self.policies = folder / "policies"
        self.policies.mkdir()
        self.config = folder / "weir.yaml"
        self.config.write_text(
            yaml.safe_dump(
                {
                    "warehouse": str(folder / "warehouse"),
                    "partitions": 2,
                    "policies": "policies",
                    "shadows": {"same": "policies"},
                    "alerts": None,
                    "quality": None,
                    "maintenance": None,
                    "idle_advance_ms": 60_000,
                    "source": {
                        "format": "files",
                        "path": str(folder / "events"),
                        "options": {"maxFilesPerTrigger": max(len(self._files) // 6, 1)},
                    },
                }
            )
        )
        self.limit(1.0)

    def limit(self, share: float, text: str | None = None) -> None:
        """Let the policies be those of the trace with rates of such a share, or a text."""
        found = self.documents(share)
        (self.policies / "fleet.yaml").write_text(found if text is None else text)

    def documents(self, share: float) -> str:
        """The policies of the trace with rates of such a share."""
        return yaml.safe_dump(
            [
                {
                    **p,
                    "limits": {
                        k: scaled(v, share) if "Rate" in k else v for k, v in p["limits"].items()
                    },
                }
                for p in self.trace.policies
            ]
            + [{"scope": "user", "name": "*", "limits": {"producer_ids_rate": int(20 * share)}}]
        )

    def come(self, share: float) -> int:
        """Let the files up to a share of all come; how many there are then."""
        until = round(share * len(self._files))
        for i in range(self._came, until):
            to = self.folder / "events" / self._files[i].name
            unfinished = to.with_name(f".{to.name}")
            unfinished.write_bytes(self._files[i].read_bytes())
            os.utime(unfinished, (1_700_000_000 + i, 1_700_000_000 + i))
            unfinished.rename(to)
        self._came = until
        return until

    @property
    def settings(self) -> Settings:
        """The configuration as it is now."""
        return load_settings(self.config, reads=True)

    def log(self) -> policy_log.PolicyLog:
        """The versions that the query has judged by."""
        found = policy_log.load(self.settings.location, QUERY)
        assert found is not None
        return found

    def table(self) -> list[dict[str, Any]]:
        """The rows of the table `policies`, in order of time."""
        rows = DeltaTable(f"{self.settings.warehouse}/policies").to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda r: (r["read_ms"], r["version"] or 0))


def scaled(value: Any, share: float) -> Any:
    return int(value * share) if isinstance(value, int) and value > 0 else value


def at_once(settings: Settings, group: dict[str, Operator]) -> Rows:
    """The rows of the jobs over the archive, each shard in one slice, drained."""
    return {
        name: sorted(
            tuple(str(row[c]) for c in row if c not in NOT_COMPARED) for row in rows.to_pylist()
        )
        for name, rows in replayed(settings, settings.jobs, group=group, drain=True).items()
        if TABLES[name].job
    }


def assert_as_at_once(place: Place) -> Rows:
    """The rows of all jobs of a warehouse that is drained are those of their versions; they are
    answered."""
    settings = place.settings
    expected = at_once(settings, live_operators(settings, settings.jobs))
    assert {"throttle_events", "producer_id_decisions", "backlog_checks"} <= expected.keys()
    found = {name: rows_of(place.settings.warehouse, name) for name in expected}
    for name, rows in expected.items():
        assert found[name] == rows, name
    for name, rows in shadow_rows(settings, "same").items():
        assert found.get(name, []) == rows, name
    return found


def shadow_rows(settings: Settings, policy: str) -> Rows:
    """The rows of a shadow by live table."""
    found: Rows = {}
    for table in TABLES.values():
        if table.live is not None:
            whose = table.names.index(WHOSE.name)
            rows = rows_of(settings.warehouse, table.name)
            found[table.live] = [row[:whose] for row in rows if row[whose] == policy]
    return found
