"""Which reads from storage a cache takes in while the keys of backlog caching are set.

A topic is written at first and read a minute later, when nothing of it is cached any more: a second
read of an entry is a hit only if the first one was cached.
"""

from __future__ import annotations

from typing import Any

import pytest

from state.engine import codec
from state.engine.reach import Reach
from state.entry_cache import shard
from state.entry_cache.declaration import STATE_VERSION
from state.entry_cache.operator import EntryCache
from state.entry_cache.settings import BACKLOG_BETWEEN, BACKLOG_CURSORS, BACKLOG_ENTRIES, BY_COUNT
from state.entry_cache.store import pack
from tests.reference.entry_cache import MOST_LEDGERS
from tests.unit.state.cache_trace import PARAMS, Row, blob, play
from tests.unit.state.entry_cache_input import (
    READS,
    added,
    cursor,
    limits,
    of_entry,
    read,
    record,
    same,
)
from tests.unit.state.trace import START_MS

FIFO = {**READS, "policy": "fifo"}
MINUTE = 60_000


def keys(cursors: int, entries: int, between: int) -> dict[str, int]:
    return {BACKLOG_CURSORS: cursors, BACKLOG_ENTRIES: entries, BACKLOG_BETWEEN: between}


def cached(
    before: list[Row], params: dict[str, Any], at_ms: int = MINUTE + 1, entry: int = 20
) -> dict[str, bool]:
    """Of each subscription of a trace, whether its read of an entry of its own is cached.

    A cursor without a backlog stays behind them all, since what all have passed leaves the cache.
    """
    names = sorted({r["subscription"] for r in before if r["event_type"] == "cursor_state"})
    asked = [cursor(at_ms - 1, "behind", "0:0", durable=False)]
    for i, name in enumerate(names):
        # the other one has no record of its own
        asked += [read(at_ms + 2 * i, entry + i, name), read(at_ms + 2 * i + 1, entry + i, "other")]
    rows = same([*before, *asked], params)
    found = [r for r in rows["cache_reads"] if r["ts_wall_ms"] >= START_MS + at_ms]
    return {name: found[2 * i + 1]["hit"] for i, name in enumerate(names)}


def topic(backlogs: dict[str, int], entries: int = 10, **more: Any) -> list[Row]:
    """Entries of one ledger, and cursors with so many of them before them."""
    return [
        *(cursor(0, name, f"1:{entries - backlog}", **more) for name, backlog in backlogs.items()),
        *(added(1, entry) for entry in range(entries)),
    ]


# -- the rule --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backlogs", "limit", "caching"),
    [
        # 9 and 7 are within 2 of each other, 3 is not
        ({"a": 9, "b": 7, "c": 3}, keys(1, 1, 2), {"a", "b"}),
        ({"a": 9, "b": 7, "c": 3}, keys(1, 1, 1), set()),
        ({"a": 9, "b": 7, "c": 3}, keys(1, 1, 4), {"a", "b", "c"}),
        # the example of docs/semantics/entry_cache.md, by the hundred
        ({"a": 20, "b": 16, "c": 12, "d": 9}, keys(2, 10, 5), {"b", "c"}),
        # two others: only the one in the middle has them
        ({"a": 9, "b": 7, "c": 5}, keys(2, 1, 2), {"b"}),
        ({"a": 9, "b": 7, "c": 5}, keys(3, 1, 100), set()),
        # a cursor below the minimum caches nothing and counts for the others all the same
        ({"a": 9, "b": 7}, keys(1, 8, 2), {"a"}),
        ({"a": 9, "b": 7}, keys(1, 9, 2), {"a"}),
        ({"a": 9, "b": 7}, keys(1, 10, 2), set()),
        ({"a": 0, "b": 0}, keys(1, 0, 0), {"a", "b"}),
        # behind the last entry there is nothing to read
        ({"a": -3, "b": 0}, keys(1, 0, 0), {"a", "b"}),
        ({"a": 10}, keys(1, 0, 100), set()),
        ({"a": 10, "b": 3}, keys(0, 1, 0), {"a", "b"}),
    ],
)
def test_enough_others_with_a_backlog_like_its_own(
    backlogs: dict[str, int], limit: dict[str, int], caching: set[str]
) -> None:
    found = cached(topic(backlogs, 20), {**FIFO, **limit})
    assert {name for name, is_cached in found.items() if is_cached} == caching


@pytest.mark.parametrize(
    ("policy", "obeys"),
    [
        ("fifo", True),
        ("proportional", True),
        ("lru", False),
        ("expected_reads", False),
        ("expected_reads_stash", False),
    ],
)
def test_only_policies_that_a_broker_has_without_expected_reads(policy: str, obeys: bool) -> None:
    found = cached(topic({"a": 9, "b": 3}), {**READS, "policy": policy, **keys(1, 1, 2)})
    assert found == {"a": not obeys, "b": not obeys}


def test_expected_reads_that_are_off_let_the_keys_count() -> None:
    params = {**READS, **keys(1, 1, 2)}
    assert cached(topic({"a": 9, "b": 3}), params) == {"a": True, "b": True}
    assert cached(topic({"a": 9, "b": 3}), {**params, BY_COUNT: False}) == {"a": False, "b": False}


@pytest.mark.parametrize("active", [True, False])
def test_what_a_record_says_of_its_cursor_stays_the_answer(active: bool) -> None:
    """It counts for the others with its backlog."""
    before = [*topic({"a": 9}), cursor(2, "b", "1:3", active=active)]
    assert cached(before, {**FIFO, **keys(1, 1, 1)}) == {"a": False, "b": True}
    assert cached(before, {**FIFO, **keys(1, 1, 2)}) == {"a": True, "b": True}
    # the last record decides
    later = [*before, cursor(3, "b", "1:3")]
    assert cached(later, {**FIFO, **keys(1, 1, 1)}) == {"a": False, "b": False}


def test_cursors_that_are_not_durable_or_stand_nowhere_do_not_count() -> None:
    params = {**FIFO, **keys(1, 1, 2)}
    before = [*topic({"a": 9}), cursor(2, "b", "1:2", durable=False)]
    assert cached(before, params) == {"a": False, "b": False}
    before = [*topic({"a": 9}), cursor(2, "b", None, mark_delete="1:1")]
    assert cached(before, params) == {"a": False, "b": False}


# -- when ------------------------------------------------------------------------------------


def test_backlogs_are_those_of_the_last_minute() -> None:
    """Counted behind the end of each minute since the key's first record."""
    params, before = {**FIFO, **keys(1, 1, 2)}, topic({"a": 9, "b": 7})
    assert cached(before, params, MINUTE - 5) == {"a": False, "b": False}
    # what comes at that very moment comes before the check
    rows = same([*before, read(MINUTE, 20, "a"), read(MINUTE + 1, 20, "other")], params)
    assert [r["hit"] for r in rows["cache_reads"]] == [False, False]
    assert cached(before, params, MINUTE + 1) == {"a": True, "b": True}
    moved = [*before, cursor(MINUTE + 5, "b", "1:10")]
    assert cached(moved, params, MINUTE + 10) == {"a": True, "b": True}
    assert cached(moved, params, 2 * MINUTE + 1) == {"a": False, "b": False}


def test_a_cursor_that_comes_waits_for_the_check_and_one_that_goes_counts_no_longer() -> None:
    params, before = {**FIFO, **keys(1, 1, 2)}, topic({"a": 9, "b": 7})
    comes = [*before, cursor(MINUTE + 5, "c", "1:1")]
    assert cached(comes, params, MINUTE + 10) == {"a": True, "b": True, "c": False}
    assert cached(comes, params, 2 * MINUTE + 1) == {"a": True, "b": True, "c": True}
    goes = [
        *before,
        record("cursor_deleted", MINUTE + 5, subscription="b"),
        cursor(MINUTE + 6, "b", "1:3"),
    ]
    assert cached(goes, params, MINUTE + 10) == {"a": False, "b": False}


def test_a_policy_counts_from_its_own_time_on() -> None:
    before = [*topic({"a": 9, "b": 7}), limits(MINUTE + 2, **keys(1, 1, 1))]
    assert cached(before, FIFO, MINUTE + 10) == {"a": False, "b": False}
    before.append(limits(MINUTE + 3, **keys(1, 1, 2)))
    assert cached(before, FIFO, MINUTE + 10) == {"a": True, "b": True}


# -- entries of several ledgers --------------------------------------------------------------


def ledgers(*sizes: int) -> list[Row]:
    """Entries of the ledgers 1, 2 ..."""
    return [
        {**added(1 + ledger, entry), "ledger_id": ledger + 1}
        for ledger, size in enumerate(sizes)
        for entry in range(size)
    ]


def test_a_backlog_goes_over_ledgers() -> None:
    # a: 2 of 5, 4, 1 = 7; b: 3 of 4, 1 = 4
    before = [cursor(0, "a", "1:3"), cursor(0, "b", "2:1"), *ledgers(5, 4, 1)]
    assert cached(before, {**FIFO, **keys(1, 7, 3)}) == {"a": True, "b": False}
    assert cached(before, {**FIFO, **keys(1, 8, 3)}) == {"a": False, "b": False}
    assert cached(before, {**FIFO, **keys(1, 4, 3)}) == {"a": True, "b": True}
    assert cached(before, {**FIFO, **keys(1, 4, 2)}) == {"a": False, "b": False}
    # without the second ledger 3 and 1
    gone = [*before, {**of_entry("ledger_deleted", 9, None), "ledger_id": 2}]
    assert cached(gone, {**FIFO, **keys(1, 3, 2)}) == {"a": True, "b": False}
    assert cached(gone, {**FIFO, **keys(1, 4, 2)}) == {"a": False, "b": False}
    assert cached(gone, {**FIFO, **keys(1, 1, 2)}) == {"a": True, "b": True}


def test_entries_before_the_first_record_of_a_ledger_are_in_it_as_well() -> None:
    before = [
        cursor(0, "a", "1:0"),
        cursor(0, "b", "1:0"),
        added(1, 9),
        {**added(2, 4), "ledger_id": 2},
    ]
    assert cached(before, {**FIFO, **keys(1, 15, 0)}) == {"a": True, "b": True}
    assert cached(before, {**FIFO, **keys(1, 16, 0)}) == {"a": False, "b": False}


def test_a_start_of_the_broker_forgets_ledgers() -> None:
    again = [
        record("broker_started", 100),
        cursor(101, "a", "1:0"),
        cursor(101, "b", "1:0"),
        {**added(102, 1), "ledger_id": 9},
    ]
    before = [*ledgers(5, 4), *again]
    assert cached(before, {**FIFO, **keys(1, 2, 0)}, MINUTE + 200) == {"a": True, "b": True}
    assert cached(before, {**FIFO, **keys(1, 3, 0)}, MINUTE + 200) == {"a": False, "b": False}


def test_the_oldest_of_many_ledgers_is_forgotten() -> None:
    many = MOST_LEDGERS + 2
    before = [cursor(0, "a", "1:0"), cursor(0, "b", "1:0"), *ledgers(*[1] * many)]
    assert cached(before, {**FIFO, **keys(1, many - 1, 0)}) == {"a": True, "b": True}
    assert cached(before, {**FIFO, **keys(1, many, 0)}) == {"a": False, "b": False}


# -- state -----------------------------------------------------------------------------------


def test_ledgers_and_backlogs_are_in_the_state() -> None:
    params = {**FIFO, **keys(1, 7, 3)}
    written = [cursor(0, "a", "1:3"), cursor(0, "b", "2:1"), *ledgers(5, 4, 1)]
    written += [cursor(MINUTE + 1, "c", "3:0")]
    states: list[bytes] = []
    play([written], params, until_ms=START_MS + MINUTE + 2000, states=states)
    job = EntryCache({**PARAMS, **params})
    (broker,) = job.shard_of(states[-1]).brokers.values()
    parts = pack(broker.world)
    assert parts["ledgers"].tolist() == [(0, 1, 5), (0, 2, 4)]
    names = [broker.names.get(int(c["name"])) for c in parts["cursors"]]
    assert dict(zip(names, parts["cursors"]["backlog"].tolist(), strict=True)) == {
        "a": 7,
        "b": 4,
        "c": -(2**63),
    }
    at = MINUTE + 3000
    more = [
        cursor(at, "behind", "0:0"),
        read(at + 1, 20, "a"),
        read(at + 2, 20, "other"),
        read(at + 3, 21, "b"),
        read(at + 4, 21, "other"),
        cursor(at + 9000, "a"),
    ]
    rows = job.step(states[-1], [blob(more)], Reach(0)).tables["cache_reads"].to_pylist()
    assert [r["hit"] for r in rows] == [False, True, False, False]


def test_a_state_without_ledgers_is_refused() -> None:
    states: list[bytes] = []
    play([topic({"a": 9})], FIFO, states=states)
    old = codec.encode("entry_cache", 1, codec.decode("entry_cache", STATE_VERSION, states[-1]))
    with pytest.raises(codec.StateFormatError) as refused:
        shard.Brokers((), (), data=old)
    assert (
        str(refused.value)
        == f"state of entry_cache has version 1, this release reads {STATE_VERSION}"
    )


# -- as a broker 4.2.4 does ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "own", "limit", "is_cached"),
    [
        ("expected_reads", {}, keys(0, 1000, 1000), True),
        ("expected_reads_stash", {"active": True}, keys(0, 1000, 1000), True),
        ("expected_reads", {"active": False}, keys(0, 1000, 1000), False),
        ("expected_reads", {"active": False}, keys(1, 1, 5), False),
        # without expected reads the keys alone decide, whatever the broker says of the cursor
        ("fifo", {}, keys(0, 1000, 1000), False),
        ("proportional", {"active": True}, keys(0, 1, 5), False),
        ("fifo", {"active": False}, keys(1, 1, 5), True),
        ("proportional", {"active": True}, keys(1, 1, 5), True),
        ("fifo", {"active": True}, keys(2, 1, 5), False),
        ("fifo", {"durable": False}, keys(1, 1, 5), False),
        ("lru", {"active": False}, keys(0, 1, 5), True),
    ],
)
def test_a_broker_keeps_some_reads_from_storage(
    policy: str, own: dict[str, Any], limit: dict[str, int], is_cached: bool
) -> None:
    params = {**READS, "policy": policy, **limit, "storage_reads": "as_broker"}
    found = cached(topic({"a": 9, "b": 7}, **own), params)
    assert found == {"a": is_cached, "b": is_cached}


@pytest.mark.parametrize(("reads", "hits"), [("all", True), ("as_broker", False)])
@pytest.mark.parametrize("policy", ["expected_reads", "fifo"])
def test_a_replay_reads_entries_that_are_not_kept(policy: str, reads: str, hits: bool) -> None:
    params = {**READS, "policy": policy, **keys(1, 1, 5), "storage_reads": reads}
    rows = same(
        [
            *topic({"a": 9, "b": 7}),
            cursor(0, "behind", "0:0"),
            of_entry("replay_queued", MINUTE, 3, subscription="a"),
            read(MINUTE + 2, 3, "a"),
            read(MINUTE + 3, 3, "other"),
        ],
        params,
    )["cache_reads"]
    assert [(row["reader_kind"], row["hit"]) for row in rows] == [
        ("replay", False),
        ("catch_up", hits),
    ]
