"""Entities that rest: nothing shows that they do, and nothing reads them without need."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.client_quotas import resting, shard
from state.engine.reach import Reach
from state.engine.resting import Rest, Resting
from state.jobs import DECLARED
from tests.support.effort import drawn
from tests.support.state_header import described
from tests.unit.state import client_quota_traces
from tests.unit.state.client_quota_trace import (
    PARAMS,
    T0,
    blob,
    numbered,
    other,
    policy,
    quota,
    request,
)
from tests.unit.state.contract import awake
from tests.unit.state.contract.jobs import JOBS, cut, with_walls
from tests.unit.state.drawn_trace import Trace
from tests.unit.state.shipping import Row
from tests.unit.state.sizes import sizes_of

MANY = 1100
PAIRS = 2 * MANY
"""Entities: each user, to which bytes are charged, and each with its client id, whose use it is."""
EACH = (quota("<default>", producer_byte_rate=1e6),)
IDLE_MS = 600_000
RESTED_MS = 3000
"""When all but the first user go to rest."""


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sizes of the pages that are read, in order."""
    sizes: list[int] = []
    plain = shard.read_page

    def counting(data: bytes, *more: Any) -> Any:
        sizes.append(len(data))
        return plain(data, *more)

    monkeypatch.setattr(shard, "read_page", counting)
    return sizes


class Core:
    """The core with limits of each user, over one shard."""

    def __init__(self, users: int = MANY) -> None:
        params = {**PARAMS, "stats_window_ms": 60_000, "idle_state_ms": IDLE_MS}
        self._core = DECLARED["client_quotas"].core(params, EACH)
        self.state: bytes | None = None
        self.call(*(request(i % 900, user=f"u{i}", charged_bytes=i) for i in range(users)))
        for at_ms in (1500, RESTED_MS):
            self.call(request(at_ms, user="u0", charged_bytes=1))

    def call(self, *records: Row, until: int = 0) -> dict[str, int]:
        """How many rows each table gets of some records, or of a time that is reached (ms)."""
        self._call(records)
        last = max((r["ts_wall_ms"] + 1 for r in records), default=T0 + until)
        return self._call([], last)

    def _call(self, records: Sequence[Row], stream_ms: int = 0) -> dict[str, int]:
        blobs = [blob(numbered(records))] if records else []
        step = self._core.step(self.state, blobs, Reach(stream_ms))
        self.state = step.state
        return {name: table.num_rows for name, table in step.tables.items()}

    @property
    def pages(self) -> int:
        return len(shard.read(self.state or b"").resting)

    @property
    def sizes(self) -> dict[str, int]:
        return sizes_of(shard.read(self.state or b""))


def test_rest_changes_no_row_and_nothing_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random traces, with pages of one to three entities."""
    went = [0, 0]
    usual = Resting.joined_by, shard.read_page

    def joined_by(self: Any, key: Any, *more: Any) -> Any:
        went[0] += len(key)
        return usual[0](self, key, *more)

    def read_page(*more: Any) -> Any:
        went[1] += 1
        return usual[1](*more)

    job = JOBS["client_quotas"]

    @drawn(300)
    @given(client_quota_traces.traces(), st.integers(0, 10**6))
    def check(trace: Trace, seed: int) -> None:
        order = random.Random(seed)
        records = with_walls(job.read(trace.records))
        sample = job.sample(trace, max(r["ts_wall_ms"] for r in records) + 3000)
        whole_states: list[bytes] = []
        states: list[bytes] = []
        whole = job.play([records], sample, whole_states)
        with monkeypatch.context() as patched:
            patched.setattr(resting, "REST", Rest(500 * (seed % 3), order.choice((1, 3))))
            patched.setattr(resting, "AGAIN_MS", order.choice((0, 0, 5000)))
            patched.setattr(Resting, "joined_by", joined_by)
            patched.setattr(shard, "read_page", read_page)
            split = job.play(cut(records, order), sample, states)
            job.assert_same(split, whole)
            assert job.knows(states[-1], sample) == job.knows(whole_states[-1], sample)

    check()
    assert min(went) > 50


def test_a_batch_reads_only_the_pages_it_needs(read: list[int]) -> None:
    core = Core()
    assert (core.sizes["resting"], core.sizes["usage"]) == (PAIRS - 2, 1)
    assert core.pages >= 5
    read.clear()
    core.call(request(31_000, user="u0", charged_bytes=1))
    assert read == []
    core.call(request(32_000, user="u7", charged_bytes=1))
    assert 1 <= len(read) <= 2
    read.clear()
    core.call(
        policy(33_000, quota("u9", producer_byte_rate=5)),
        request(33_000, user="u0", charged_bytes=1),
    )
    assert read == []


def test_an_entity_goes_on_with_its_history() -> None:
    core = Core()
    core.call(request(32_000, user="u700", charged_bytes=1))
    found = shard.read(core.state or b"")
    uses = [
        e["bytes"] for e in found.parts["usage"] if found.names.get(e["principal"]) == "User:u700"
    ]
    assert uses == [701]


def test_a_page_that_was_read_for_a_request_is_not_written_at_once(read: list[int]) -> None:
    core = Core()
    core.call(request(RESTED_MS + 1000, user="u7", charged_bytes=1))
    resting_now = core.sizes["resting"]
    assert resting_now < PAIRS - 256
    core.call(request(RESTED_MS + 5000, user="u0", charged_bytes=1))
    assert core.sizes["resting"] == resting_now
    core.call(until=RESTED_MS + resting.AGAIN_MS)
    assert core.sizes["resting"] == PAIRS


def test_windows_that_end_are_written_whole(read: list[int]) -> None:
    core = Core()
    read.clear()
    assert core.call(until=59_999) == {}
    assert read == []
    pages = core.pages
    assert core.call(until=60_001) == {"client_quota_stats": MANY, "client_usage": 1000 + 1}
    assert len(read) == pages
    assert core.sizes["resting"] >= MANY - 1


def test_sensors_that_were_idle_for_too_long_are_dropped_unread(read: list[int]) -> None:
    core = Core()
    core.call(until=60_001)
    read.clear()
    core.call(until=IDLE_MS)
    assert core.pages > 0
    core.call(until=IDLE_MS + 31_000)
    assert (core.pages, core.sizes["resting"], core.sizes["sensors"]) == (0, 0, 0)
    assert read == []


def test_a_page_is_read_for_a_request_though_the_same_batch_goes_beyond_its_time(
    read: list[int],
) -> None:
    core = Core()
    core.call(until=60_001)
    read.clear()
    core.call(
        request(500_000, user="u7", charged_bytes=1),
        request(IDLE_MS + 31_000, user="u0", charged_bytes=1),
    )
    assert len(read) in (1, 2)
    assert core.pages == 0
    found = shard.read(core.state or b"")
    assert {found.names.get(e["user"]) for e in found.parts["sensors"]} == {"u0", "u7"}


def test_a_broker_start_resets_those_that_rest() -> None:
    core = Core()
    core.call(other("broker_started", 40_000), request(40_001, user="u0", charged_bytes=1))
    assert core.sizes["resting"] == PAIRS - 2
    found = awake.client_quotas(core.state or b"").parts
    assert (len(found["sensors"]), len(found["usage"])) == (1, MANY)


def test_a_state_in_which_nothing_rests_has_no_pages() -> None:
    core = Core(10)
    names = [array["name"] for array in described(core.state or b"")["arrays"]]
    assert not [name for name in names if name.startswith("resting")]


def test_entities_of_one_hash_are_all_found(
    read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resting, "combine_hashes", lambda first, *more: 0 * first + 7)
    core = Core()
    pages = core.pages
    read.clear()
    core.call(request(32_000, user="u7", charged_bytes=1))
    assert len(read) >= pages
