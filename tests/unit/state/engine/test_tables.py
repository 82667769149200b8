"""Tables of state against a dictionary, and what follows from a declaration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.engine.kernel import NULL, Array, Int, compiled
from state.engine.names import Names
from state.engine.store import Store
from state.engine.tables import (
    NOBODY,
    Children,
    Count,
    Indexed,
    Key,
    Ms,
    Name,
    Place,
    Real,
    StateRow,
    adopt,
    at,
    children,
    copy_fields,
    drop,
    each,
    find,
    in_order,
    in_use,
    is_short,
    more_children,
    moved,
    places,
    release,
    table,
    with_room,
)
from tests.support.effort import drawn


class Use(StateRow):
    """What a user did at a broker."""

    broker: Key[Place]
    user: Key[Name]
    requests: Count
    rate: Real = float("nan")
    since_ms: Ms = NULL
    feed: Name


@compiled
def count(t: Indexed, brokers: Array, users: Array, begin: Int) -> Int:
    """Count requests; the first for which there is no room, or their number."""
    for i in range(begin, len(brokers)):
        if is_short(t, 1):
            return np.int64(i)
        u = t.rows[at(t, (brokers[i], users[i]))]
        u.requests += 1
        if u.since_ms == NULL:
            u.since_ms = np.int64(i)
    return np.int64(len(brokers))


def counted(requests: list[tuple[int, int]], room: int) -> Indexed:
    brokers, users = np.array(requests, np.int64).reshape(-1, 2).T.copy()
    t, done = table(Use, np.zeros(0, Use.dtype), room), np.int64(0)
    while (done := count(t, brokers, users, done)) < len(requests):
        t = with_room(Use, t, 1)
    return t


@drawn(300)
@given(
    requests=st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), st.integers(0, 60)),
        max_size=400,
    ),
)
def test_rows_are_those_of_a_dictionary(requests: list[tuple[int, int]]) -> None:
    wanted: dict[tuple[int, int], list[int]] = {}
    for number, key in enumerate(requests):
        wanted.setdefault(key, [0, number])[0] += 1
    t = counted(requests, 0)
    rows = in_use(t)
    assert [tuple(row)[:2] for row in rows.tolist()] == list(wanted)
    assert [[row["requests"], row["since_ms"]] for row in rows] == list(wanted.values())
    assert np.isnan(rows["rate"]).all() and (rows["feed"] == -1).all()
    for place, (broker, user) in enumerate(wanted):
        assert find(t, (np.int64(broker), np.int64(user))) == place
    assert find(t, (np.int64(7), np.int64(61))) == NOBODY


def test_a_row_has_its_defaults_first_and_after_growth() -> None:
    t = counted([(0, user) for user in range(1000)], 0)
    assert len(in_use(t)) == 1000 < len(t.rows)
    fresh = t.rows[at(t, (np.int64(1), np.int64(1)))]
    assert fresh["since_ms"] == NULL and fresh["requests"] == 0 and np.isnan(fresh["rate"])


def test_a_part_keeps_rows_and_renumbers_their_names() -> None:
    kept = Store("toy", 1, Use.part("uses"))
    names = Names()
    ids = [names.intern_one(f"name {i}") for i in range(100)]
    rows = np.concatenate([Use.blank, Use.blank])
    rows["user"], rows["feed"], rows["requests"] = ids[7], (ids[90], -1), 3
    found, smaller = kept.read(kept.write({"uses": rows}, names))
    assert len(smaller) == 2, "names that no row has are left out"
    assert [smaller.get(int(n)) for n in found["uses"]["user"]] == ["name 7", "name 7"]
    assert smaller.get(int(found["uses"]["feed"][0])) == "name 90"
    assert found["uses"]["feed"][1] == -1 and found["uses"]["requests"].tolist() == [3, 3]


def test_fields_are_attributes_outside_the_compiler() -> None:
    rows = table(Use, Use.blank).rows
    rows[0].requests += 2
    assert (rows[0].requests, rows["requests"][0], rows[0].since_ms) == (2, 2, NULL)


def test_the_identity_stands_first() -> None:
    with pytest.raises(TypeError, match="Amiss: the fields of the identity stand first"):

        class Amiss(StateRow):
            requests: Count
            user: Key[Name]


class Seen(StateRow):
    """What was seen of a user."""

    user: Key[Name]
    last_ms: Ms = NULL
    rate: Real
    broker: Place


@compiled
def look_at(uses: Array, seen: Array) -> None:
    """Copy each use to what was seen."""
    for i in range(len(uses)):
        copy_fields(seen[i], uses[i])


@compiled
def release_all(c: Children, owner: Int, found: Array) -> Int:
    """Release the children of an owner; how many there were."""
    count = np.int64(0)
    for place in each(c, owner):
        found[count] = place
        count += 1
        release(c, owner, place)
    return count


def test_each_child_may_be_released_when_it_is_given() -> None:
    c = children(np.array([1, 0, 1, 1]), np.arange(4), 2, 64)
    found = np.zeros(4, np.int64)
    assert release_all(c, np.int64(1), found) == 3 and found[:3].tolist() == [0, 2, 3]
    assert in_order(c, np.arange(2)).tolist() == [1]
    assert release_all(c, np.int64(1), found) == 0


def test_fields_that_two_rows_have_are_copied() -> None:
    uses, seen = np.zeros(2, Use.dtype), np.concatenate([Seen.blank, Seen.blank])
    uses["broker"], uses["user"], uses["requests"], uses["rate"] = (1, 2), (3, -1), 9, (0.5, -0.0)
    before = uses.copy()
    look_at(uses, seen)
    assert seen.tolist() == [(3, NULL, 0.5, 1), (-1, NULL, -0.0, 2)]
    assert (uses == before).all()


KEYS = st.tuples(st.integers(0, 3), st.integers(0, 12))


@drawn(300)
@given(steps=st.lists(st.tuples(st.booleans(), KEYS), max_size=300))
def test_rows_come_and_go_as_those_of_a_dictionary(
    steps: list[tuple[bool, tuple[int, int]]],
) -> None:
    """Their children of a broker stay in the order in which they came."""
    t = table(Use, np.zeros(0, Use.dtype), 1)
    of = children(np.zeros(0, np.int64), np.zeros(0, np.int64), 4, len(t.rows))
    wanted: dict[tuple[int, int], int] = {}
    for number, (comes, pair) in enumerate(steps):
        key = np.int64(pair[0]), np.int64(pair[1])
        if comes:
            t = with_room(Use, t, 1)
            of = more_children(of, 4, len(t.rows))
            known = find(t, key)
            assert bool(known != NOBODY) == (pair in wanted)
            place = at(t, key)
            if known == NOBODY:
                assert t.rows[place]["requests"] == 0 and t.rows[place]["since_ms"] == NULL
                adopt(of, key[0], place)
            t.rows[place]["requests"] = wanted[pair] = number
        else:
            place = find(t, key)
            assert drop(t, key) == place
            assert bool(place != NOBODY) == (wanted.pop(pair, None) is not None)
            if place != NOBODY:
                release(of, key[0], place)
    rows = t.rows[places(t)]
    found = {(int(r["broker"]), int(r["user"])): int(r["requests"]) for r in rows}
    assert found == wanted and len(rows) == len(wanted)
    every = np.arange(4)
    ordered = in_order(of, every)
    came = sorted(wanted, key=lambda pair: pair[0])
    assert t.rows[ordered][["broker", "user"]].tolist() == came
    assert moved(ordered, ordered, len(t.rows)).tolist() == list(range(len(wanted)))
    anew = table(Use, t.rows[ordered])
    again = children(in_use(anew)["broker"], np.arange(len(ordered)), 4, len(anew.rows))
    assert in_order(again, every).tolist() == list(range(len(wanted)))
    assert all(find(anew, (np.int64(b), np.int64(u))) >= 0 for b, u in wanted)
