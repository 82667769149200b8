"""Records that a job does not apply: too late for the clock of their key, or repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from state.engine.records import NULL, Array, Records, concat, take

if TYPE_CHECKING:
    from state.engine.names import Names

FAR_MS = 30 * 24 * 3_600_000
"""Parts of one stream are no further apart than this."""


@dataclass
class Refused:
    """Records that are not applied, with the reason of each."""

    job: str
    parts: list[Records] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    needed_idle_advance_ms: int | None = None

    def needs(self, idle_advance_ms: int) -> None:
        """That much would have kept a record. The most that is asked for counts, but none that only
        a wrong clock asks for hides one that is less."""
        known = self.needed_idle_advance_ms
        if known is None or (idle_advance_ms > known) is (max(known, idle_advance_ms) <= FAR_MS):
            self.needed_idle_advance_ms = idle_advance_ms

    def add(self, records: Records, picked: Array, code: str, details: Sequence[str]) -> None:
        """Refuse the rows at these positions, each with its detail."""
        self.parts.append(take(records, picked))
        self.codes.extend([code] * len(picked))
        self.details.extend(details)

    def table(self, names: Names) -> pa.Table | None:
        """Rows of `quarantine`; None if nothing was refused."""
        if not self.codes:
            return None
        r = concat(self.parts)
        strings = names.strings()

        def text(ids: Array) -> pa.Array:
            return strings.take(pa.array(ids, mask=ids < 0)).cast(pa.string())

        return pa.table(
            {
                "reason_code": pa.array(self.codes),
                "detail": pa.array(self.details),
                "job": pa.repeat(pa.scalar(self.job), len(self.codes)),
                "source_feed": text(r["source_feed"]),
                "cluster": text(r["cluster"]),
                "broker": text(r["broker"]),
                "seq": pa.array(r["seq"], mask=r["has_seq"] == 0),
                "ts_wall_ms": pa.array(r["ts_wall_ms"], mask=r["ts_wall_ms"] == NULL),
                "source_partition": text(r["source_partition"]),
                "source_offset": pa.array(r["source_offset"]),
                "raw": pa.nulls(len(self.codes), pa.string()),
                "ingest_ms": pa.array(r["ingest_ms"]),
            }
        )
