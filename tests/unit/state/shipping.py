"""Records shipped to a core as the router ships them, and a core called as a query calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa

from app.config.settings import Settings
from state.engine.declaration import Stage
from state.engine.job import Job
from state.engine.reach import Reach
from state.events import KIND_INDEX, SCHEMA
from state.jobs import DECLARED
from tests.support.blobs_of_columns import of_columns

Row = dict[str, Any]


def params_of(job: str, **own: Any) -> dict[str, Any]:
    """All parameters of a core: the defaults of its declaration, and `own` in their place."""
    return {**_defaults(job), **own}


@cache
def _defaults(job: str) -> dict[str, Any]:
    return Settings().job_params(job)


def column(name: str, records: Sequence[Row]) -> pa.Array:
    """A column of the contract; null where a record has none."""
    if name == "event_type":
        return pa.array([KIND_INDEX[r[name]] for r in records], pa.int8())
    return pa.array([r.get(name) for r in records], SCHEMA.field(name).type)


def shipped(
    records: Sequence[Row],
    names: Iterable[str],
    home: int = 1,
    made: Mapping[str, pa.Array] | None = None,
) -> bytes:
    """Records as one blob with these columns, those that are `made` already as they are."""
    made = made or {}
    columns = {name: made[name] if name in made else column(name, records) for name in names}
    columns["source_partition"] = pa.array([str(r.get("source_partition", "0")) for r in records])
    columns["source_offset"] = pa.array(
        [int(r.get("source_offset", i)) for i, r in enumerate(records)], pa.int64()
    )
    columns["has_seq"] = pa.array([int(r.get("seq") is not None) for r in records], pa.int64())
    columns["home"] = pa.array([home] * len(records), pa.int64())
    columns["ingest_ms"] = pa.array([1767621600000] * len(records), pa.int64())
    columns |= {name: array for name, array in made.items() if name not in columns}
    return of_columns(columns, columns.pop("payload", None))


def read_by(job: str, records: Iterable[Row]) -> list[Row]:
    """The records that a job reads, with an identity each."""
    kinds = DECLARED[job].kinds
    return [{**r, "source_offset": i} for i, r in enumerate(records) if r["event_type"] in kinds]


def called(
    job: Job,
    batches: Iterable[Sequence[Row]],
    blob: Callable[[Sequence[Row]], bytes],
    idle_advance_ms: int,
    until_ms: int | None = None,
    states: list[bytes] | None = None,
    plain: Callable[[pa.Table], list[Row]] = pa.Table.to_pylist,
) -> dict[str, list[Row]]:
    """Rows by table of a core that is called once per batch; at the end the stream's clock is
    moved to `until_ms`, if given."""
    state: bytes | None = None
    stream, latest = 0, 0
    rows: dict[str, list[Row]] = {}

    def call(blobs: list[bytes]) -> None:
        nonlocal state
        step = job.step(state, blobs, Reach(stream))
        state = step.state
        if states is not None:
            states.append(state)
        for name, table in step.tables.items():
            rows.setdefault(name, []).extend(plain(table))

    for batch in batches:
        call([blob(batch)] if batch else [])
        latest = max([latest, *[r["ts_wall_ms"] for r in batch if r["ts_wall_ms"] is not None]])
        stream = max(latest - idle_advance_ms, 0)
    if until_ms is not None:
        stream = until_ms
    call([])
    return rows


@dataclass(frozen=True)
class Shipper:
    """Ships records to the core of a job, and plays them there."""

    job: str
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters unless others are given."""
    made: Callable[[Sequence[Row]], Mapping[str, pa.Array]] = lambda records: {}
    """Columns that are not those of the records."""
    plain: Callable[[pa.Table], list[Row]] = pa.Table.to_pylist
    """Rows of a table."""

    def blob(self, records: Sequence[Row], home: int = 1) -> bytes:
        """Records as one blob."""
        return shipped(records, DECLARED[self.job].columns, home, self.made(records))

    def numbered(self, records: Iterable[Row]) -> list[Row]:
        """The records that the job reads, with an identity each."""
        return read_by(self.job, records)

    def play(
        self,
        batches: Iterable[Sequence[Row]],
        params: Mapping[str, Any] | None = None,
        policies: Sequence[str] = (),
        until_ms: int | None = None,
        states: list[bytes] | None = None,
        stage: Stage | None = None,
    ) -> dict[str, list[Row]]:
        """Rows by table of the core; see `called`."""
        chosen = {**self.params, **(params or {})}
        core = DECLARED[self.job].core(chosen, policies, stage)
        return called(
            core, batches, self.blob, chosen["idle_advance_ms"], until_ms, states, self.plain
        )
