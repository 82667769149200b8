"""Shadow policies beside the live ones: each judges as a job of its own would."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.engine.documents import Configured, Source, Version, changes, source_of
from state.engine.globs import matching
from state.engine.reach import Reach
from state.engine.shadows import MAGIC, Shadow, WithShadows, split
from state.engine.table import SHADOW, WHOSE
from state.jobs import DECLARED
from state.policies import parse_document
from tests.support.effort import drawn
from tests.unit.state import client_quota_trace
from tests.unit.state.contract.contract_traces import SEEDS
from tests.unit.state.contract.jobs import Job, Rows, Sample, assert_same, cut, with_walls
from tests.unit.state.contract.patterns import KINDS, names_of
from tests.unit.state.contract.shards import Shards
from tests.unit.state.contract.versions import documents
from tests.unit.state.shipping import Row

SAME, OTHER = "same", "other"


@dataclass
class Policies:
    """What a core judges by."""

    first: tuple[str, ...]
    versions: list[Version] = field(default_factory=list)
    last: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.last = self.last or self.first

    def change(self, now: tuple[str, ...], latest_ms: int) -> None:
        """Take other documents after a time."""
        since = max([latest_ms, *[v.since_ms for v in self.versions]]) + 1
        changed = changes(self.last, now, None)
        self.versions.append(Version(len(self.versions) + 1, since, changed))
        self.last = now

    def at(self, wall_ms: int) -> dict[Source, str]:
        """The documents at a time."""
        found = {source_of(json.loads(text)): text for text in self.first}
        for version in self.versions:
            for source, text in version.changed.items() if version.since_ms <= wall_ms else ():
                found.pop(source, None)
                if text is not None:
                    found[source] = text
        return found

    def copy(self) -> Policies:
        """What a new shadow begins with."""
        return Policies(self.first, list(self.versions), self.last)


class Query:
    """A job with shadows, the same without them, and one that judges as a shadow from its begin."""

    def __init__(self, job: Job, by: Sample, first: tuple[str, ...], shards: int) -> None:
        self.job, self.params = job, by.params
        self.live = Policies(first)
        self.beside: Policies | None = None
        self.batch = 0
        self.all, self.alone, self.as_shadow = (Shards(job, by, shards) for _ in range(3))
        self.tables = {t.live or "": t.name for t in DECLARED[job.name].shadow_tables}
        self.since: Mapping[str, int] = {}

    @property
    def latest_ms(self) -> int:
        return self.all.latest

    def core(self, policies: Policies) -> Any:
        found = self.job.core(self.params, policies.first)
        found.follow(policies.versions)
        return found

    def begin(self, documents: tuple[str, ...]) -> None:
        """Begin the shadows; in a query that has not judged with their own documents."""
        if self.all.states:
            self.beside = self.live.copy()
            self.beside.change(documents, self.latest_ms)
        else:
            self.beside = Policies(documents)
        self.all.rows = {n: rows for n, rows in self.all.rows.items() if not n.startswith(SHADOW)}
        self.since = {name: len(rows) for name, rows in self.all.rows.items()}
        self.as_shadow.states = {at: split(state)[0] for at, state in self.all.states.items()}
        self.as_shadow.due = dict(self.all.due)
        self.as_shadow.latest, self.as_shadow.stream = self.all.latest, self.all.stream
        self.as_shadow.count, self.as_shadow.rows = self.alone.count, Rows()
        self.as_shadow.core = self.alone.core
        self.life = self.batch

    def call(self, batch: list[Row]) -> None:
        shadows = []
        if self.beside is not None:
            shadows = [
                self.shadow(name, policies)
                for name, policies in ((SAME, self.live), (OTHER, self.beside))
            ]
            self.as_shadow.core = self.core(self.beside)
            self.as_shadow.call([row for row in batch if self.holds(row)])
        documents = Configured(self.live.first)
        live = self.job.core(self.params, self.live.first)
        self.all.core = WithShadows(live, self.tables, shadows, documents)
        self.all.core.follow(self.live.versions)
        self.alone.core = self.core(self.live)
        self.all.call(batch)
        self.alone.call(batch)
        self.batch += 1

    def shadow(self, name: str, policies: Policies) -> Shadow:
        core = self.job.core(self.params, policies.first)
        found = Shadow((name, self.life), core, Configured(policies.first))
        found.follow(policies.versions)
        return found

    def holds(self, row: Row) -> bool:
        """Whether a shadow gets a record: no policy of what its own documents, which the live
        configuration has not, are about."""
        if row["event_type"] != "policy":
            return True
        document, _ = parse_document(row["policy_json"])
        if document is None:
            return True
        assert self.beside is not None
        mine, live = (each.at(row["ts_wall_ms"]) for each in (self.beside, self.live))
        own = {source for source, text in mine.items() if live.get(source) != text}
        source = source_of(document)
        return source not in own and not matching(own, *source)

    def end(self, until_ms: int | None) -> None:
        for shards in (self.all, self.alone, self.as_shadow):
            shards.end(until_ms)

    def rows_of(self, shadow: str) -> Rows:
        """The rows of a shadow under the names of the live tables."""
        return self._in_order(
            {
                live: [
                    {k: v for k, v in row.items() if k != WHOSE.name}
                    for row in self.all.rows.get(name, ())
                    if row[WHOSE.name] == shadow
                ]
                for live, name in self.tables.items()
            }
        )

    def check_same(self) -> None:
        """A shadow under the live policies has their rows, at any time."""
        since = {n: rows[self.since.get(n, 0) :] for n, rows in self.all.rows.items()}
        assert_same(self.rows_of(SAME), self._in_order(since))

    def check_end(self) -> None:
        """Every row, once each has judged everything: a shadow may wake the others earlier."""
        assert_same(self.job.in_order(self.all.rows), self.job.in_order(self.alone.rows))
        if self.beside is not None:
            self.check_same()
            assert_same(self.rows_of(OTHER), self._in_order(self.as_shadow.rows))

    def _in_order(self, rows: Mapping[str, Sequence[Row]]) -> Rows:
        return self.job.in_order({n: rows[n] for n in self.tables if n in rows})


@pytest.mark.parametrize(
    ("judge", "traces"),
    [pytest.param(*kind, marks=pytest.mark.slow if kind[1] == "long" else ()) for kind in KINDS],
    ids=lambda x: getattr(x, "name", x).replace(" ", "-"),
)
def test_a_shadow_judges_as_a_job_of_its_own(judge: Job, traces: str) -> None:
    """Shadows are added, their policies and the live ones change, shadows are taken away
    and begin anew, at batches of a trace that is cut anywhere."""

    @drawn(40)
    @given(judge.traces[traces], SEEDS, st.sampled_from((1, 2, 5)))
    def check(trace: Any, seed: int, shards: int) -> None:
        order, by = random.Random(seed), judge.sample(trace)
        records = sorted(with_walls(by.records), key=lambda r: r["ts_wall_ms"])
        until = max([by.until_ms or 0, *[r["ts_wall_ms"] + 1 for r in records]])
        names = names_of(records)
        every = [documents(judge, names, order) for _ in range(5)]
        query = Query(judge, Sample((), by.params, every[0]), every[0], shards)
        begins = order.random() < 0.5
        for i, batch in enumerate([*cut(records, order), []]):
            if query.beside is None:
                if (begins and not i) or order.random() < 0.3:
                    query.begin(every[1])
            elif order.random() < 0.15:
                query.check_same()
                query.beside = None
            elif order.random() < 0.2:
                query.beside.change(order.choice(every), query.latest_ms)
            if order.random() < 0.15:
                query.live.change(order.choice(every), query.latest_ms)
            query.call(batch)
        query.end(until)
        query.check_end()

    check()


@pytest.fixture(params=sorted({job.name for job, _ in KINDS}))
def shadowed(request: pytest.FixtureRequest) -> Job:
    return next(job for job, _ in KINDS if job.name == request.param)


def test_without_shadows_bytes_are_those_of_the_job(shadowed: Job) -> None:
    job = shadowed
    blobs = [job.blob([job.event(0, 1, key="a")])]
    plain = job.core({}).step(None, blobs, Reach(0))
    wrapped = WithShadows(job.core({}), {}).step(None, blobs, Reach(0))
    assert wrapped.state == plain.state
    beside = WithShadows(job.core({}), {}, [Shadow(("next", 0), job.core({}))])
    both = beside.step(None, blobs, Reach(0))
    assert both.state[:4] == MAGIC and split(both.state)[0] == plain.state
    gone = WithShadows(job.core({}), {}).step(both.state, [], Reach(0)).state
    assert gone == job.core({}).step(plain.state, [], Reach(0)).state
    assert split(bytes(bytearray(gone)))[0] == gone


def test_other_limits_of_a_shadow_decide_otherwise(shadowed: Job) -> None:
    """Where the live policies let everything pass, or the other way round."""
    job = shadowed
    tables = {t.live or "": t.name for t in DECLARED[job.name].shadow_tables}
    core = WithShadows(
        job.core(job.before.params, job.before.policies),
        tables,
        [Shadow(("next", 0), job.core(job.before.params, job.after.policies))],
    )
    names = [f"k{i}" for i in range(5)]
    found: Rows = {}
    step = core.step(
        None,
        [
            job.blob(
                [
                    job.event(at_ms, 1 + i + 10 * n, key=name, number=n)
                    for n, at_ms in enumerate(range(0, 200_000, 20_000))
                    for i, name in enumerate(names)
                ]
            )
        ],
        Reach(0),
    )
    for each in (step, core.step(step.state, [], Reach(job.event(400_000, 999)["ts_wall_ms"]))):
        for name, rows in each.tables.items():
            found.setdefault(name, []).extend(job.plain(rows))
    assert any(found.get(name) for name in tables.values())
    differ = [
        name
        for live, name in tables.items()
        if found.get(live, [])
        != [{k: v for k, v in row.items() if k != WHOSE.name} for row in found.get(name, [])]
    ]
    assert bool(differ) == (job.before.policies != job.after.policies)


def test_a_limit_that_is_polled_does_not_replace_the_other_one_of_a_shadow() -> None:
    """Polls bring the limits of a fleet as policies on the stream, at the start and at each change."""
    streamed = [client_quota_trace.quota(user, producer_byte_rate=10) for user in ("ann", "bob")]
    shadows = {"higher": [client_quota_trace.quota("ann", producer_byte_rate=10**9)], "same": []}

    def made(*texts: str) -> Any:
        return DECLARED["client_quotas"].core(client_quota_trace.PARAMS, texts)

    core = WithShadows(
        made(),
        {"client_quota_decisions": "shadow_client_quota_decisions"},
        [Shadow((name, 0), made(*texts), Configured(texts)) for name, texts in shadows.items()],
    )
    records = [
        *(client_quota_trace.policy(at, text) for at in (0, 20_000) for text in streamed),
        *(
            client_quota_trace.request(at, user=user, charged_bytes=1000)
            for at in (5000, 25_000)
            for user in ("ann", "bob")
        ),
    ]
    blobs = [client_quota_trace.blob(client_quota_trace.numbered(records))]
    step = core.step(None, blobs, Reach(0))
    last = core.step(step.state, [], Reach(client_quota_trace.T0 + 60_000))
    tables = {
        name: pa.concat_tables(each.tables[name] for each in (step, last) if name in each.tables)
        for name in ("client_quota_decisions", "shadow_client_quota_decisions")
    }
    rows = tables["shadow_client_quota_decisions"].to_pylist()
    assert {(row["policy"], row["user"]) for row in rows} == {
        ("higher", "bob"),
        ("same", "ann"),
        ("same", "bob"),
    }
    assert {row["user"] for row in tables["client_quota_decisions"].to_pylist()} == {"ann", "bob"}
