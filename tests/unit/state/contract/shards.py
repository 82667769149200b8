"""A job in any number of shards."""

from __future__ import annotations

from state.engine.reach import Reach
from tests.support.hashes import name_hash
from tests.unit.state.contract.jobs import Job, Rows, Sample
from tests.unit.state.shipping import Row, params_of


class Shards:
    """The states of a job in some shards, called as a query calls them: with records, or because
    a timer is due."""

    def __init__(self, job: Job, by: Sample, count: int) -> None:
        self.job, self.count, self.rows = job, count, Rows()
        self.core = job.core(by.params, by.policies)
        self.advance_ms = params_of(job.name, **by.params)["idle_advance_ms"]
        self.states: dict[int, bytes] = {}
        self.due: dict[int, int | None] = {}
        self.latest = self.stream = 0

    def home(self, key: tuple[str, ...]) -> int:
        return (name_hash(*key) % 2**64) % self.count

    def call(self, batch: list[Row]) -> None:
        """A micro-batch; the clock is moved at its end."""
        copies: dict[int, dict[bool, list[Row]]] = {}
        for record in batch:
            key = self.job.key_of(record)
            home = self.home(key or (record["cluster"], record["broker"]))
            for shard in range(self.count) if key is None else (home,):
                copies.setdefault(shard, {}).setdefault(shard == home, []).append(record)
        blobs = {
            shard: [self.job.blob(records, int(home)) for home, records in mine.items()]
            for shard, mine in copies.items()
        }
        timers = [s for s, due in self.due.items() if due is not None and due < self.stream]
        for shard in sorted({*blobs, *timers}):
            step = self.core.step(self.states.get(shard), blobs.get(shard, []), Reach(self.stream))
            self.states[shard] = step.state
            wake = step.wake_at_ms
            self.due[shard] = None if wake is None else max(wake, self.stream + 1)
            for name, table in step.tables.items():
                self.rows.setdefault(name, []).extend(self.job.plain(table))
        walls = [r["ts_wall_ms"] for r in batch if r["ts_wall_ms"] is not None]
        self.latest = max([self.latest, *walls])
        self.stream = max(self.stream, self.latest - self.advance_ms)

    def end(self, until_ms: int | None) -> Rows:
        """All rows, once the clock is at a time."""
        self.call([])
        if until_ms is not None:
            self.stream = until_ms
            self.call([])
        return self.job.in_order(self.rows)
