"""What the jobs on wall time share: the order of records, states as declared, moved structures."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.engine import structs
from state.engine.names import Names
from state.engine.records import NULL, Records
from state.engine.sequence import POLICY, Sequence
from state.engine.store import Columns, Plain, Pool, RecordSet, Store, Struct, Texts

ITEM = np.dtype([("name", "<i8"), ("on", "|u1"), ("share", "<f8")], align=True)
WIDE = np.dtype([("name", "<i8"), ("share", "<f8"), ("spare", "<i8")])
_TEXT = st.text("abc", max_size=20)
ORDER = Sequence(("entry_id", "source_feed", "broker"))


def items(n: int) -> np.ndarray:
    return np.array([(i, i % 2, i / 3) for i in range(n)], ITEM)


@pytest.mark.parametrize("n", [0, 1, 40])
def test_structures_moved_as_words_are_those_that_numpy_moves(n: int) -> None:
    array = items(n)
    assert structs.grown(array, n + 3).tolist() == [*array.tolist(), *[(0, 0, 0.0)] * 3]
    odd = array["on"] != 0
    for rows in (odd, np.flatnonzero(odd)[::-1], np.zeros(0, np.int64)):
        assert structs.picked(array, rows).tolist() == array[rows].tolist()
    plain = np.arange(2.0 * n).reshape(n, 2)
    copy = structs.copied(array)
    array["on"] = 2
    assert copy.tolist() == items(n).tolist()
    assert structs.grown(plain, n + 1).tolist() == [*plain.tolist(), [0.0, 0.0]]


@given(
    st.lists(_TEXT, unique=True),
    st.lists(st.lists(_TEXT), max_size=4),
    st.sampled_from((0, 3, 2**64 - 1)),
)
def test_names_get_their_integers_in_order_of_appearance_whatever_their_hash(
    stored: list[str], calls: list[list[str]], mask: int
) -> None:
    first = Names(mask=mask)
    first.intern(pa.array(stored, pa.string()))
    names = Names(*first.arrays(), mask=mask)
    expected = {text: i for i, text in enumerate(stored)}
    for texts in calls:
        ids = names.intern(pa.array(texts, pa.string()))
        assert ids.tolist() == [expected.setdefault(text, len(expected)) for text in texts]
    assert names.strings().to_pylist() == list(expected)


def test_records_are_put_in_order_as_their_levels_say() -> None:
    order = random.Random(7)
    names = Names()
    feeds = names.intern(pa.array(["b", "a"]))
    for n in (2, 3, 9, 200):
        records = Records.of(
            {
                "event_type": np.array([order.choice((POLICY, 0)) for _ in range(n)]),
                "ts_mono_ns": np.array([order.choice((int(NULL), 5)) for _ in range(n)]),
                "has_seq": np.array([order.randrange(2) for _ in range(n)]),
                "seq": np.array([order.randrange(3) for _ in range(n)]),
                "entry_id": np.array([order.randrange(n) for _ in range(n)]),
                "source_feed": feeds[[order.randrange(2) for _ in range(n)]],
                "broker": np.zeros(n, np.int64),
                "cluster": np.zeros(n, np.int64),
            }
        )
        key = np.array([order.randrange(4) for _ in range(n)])
        time = np.array([order.randrange(5) for _ in range(n)])

        def level(
            i: int, r: Records = records, key: np.ndarray = key, time: np.ndarray = time
        ) -> tuple[int, ...]:
            fixed = r["event_type"][i] != POLICY or r["ts_mono_ns"][i] != NULL
            seq = r["seq"][i] if r["has_seq"][i] else 0
            return tuple(
                map(
                    int,
                    (
                        key[i],
                        time[i],
                        fixed,
                        r["has_seq"][i],
                        seq,
                        r["entry_id"][i],
                        r["source_feed"][i] == feeds[0],
                    ),
                )
            )

        rows, twice = ORDER.ordered(key, time, records, names)
        assert rows.tolist() == sorted(range(n), key=lambda i: (level(i), i))
        seen: set[tuple[int, ...]] = set()
        again = set()
        for i in rows.tolist():
            identity = (*level(i)[:5], int(records["source_feed"][i]))
            if records["has_seq"][i]:
                if identity in seen:
                    again.add(i)
                seen.add(identity)
        assert set(twice.tolist()) == again


def test_a_state_keeps_what_it_declares_and_leaves_out_names_that_nothing_has() -> None:
    store = Store(
        "backlog",
        9,
        Plain("ids", names=True),
        Pool("pool", 2, (1,)),
        Texts("texts"),
        Struct("items", ITEM, ("name",)),
        Columns("wide", WIDE, ("name",), ("spare",)),
        RecordSet("waiting", ("seq", "cluster"), ("mark",)),
    )
    names = Names()
    ids = names.intern(pa.array([f"name {i}" for i in range(100)]))
    waiting = Records(store.blank()["waiting"].columns, np.arange(18).reshape(9, 2) % 2)
    waiting["cluster"] = ids[[70, 71]]
    waiting["seq"], waiting["mark"] = [-(2**63), 2**63 - 1], [5, 6]
    values = {
        "ids": ids[[90, 3]],
        "pool": np.array([[7, 8, 9], ids[[1, 1, 99]]]),
        "texts": ("new", "b"),
        "items": items(3),
        "wide": np.array([(ids[50], 0.5, 4), (-1, 1.5, 4)], WIDE),
        "waiting": waiting,
    }
    before = {name: repr(value) for name, value in values.items() if name != "waiting"}
    found, smaller = store.read(store.write(values, names))
    assert before == {name: repr(value) for name, value in values.items() if name != "waiting"}
    assert sorted(smaller.strings().to_pylist()) == sorted(
        [f"name {i}" for i in (90, 3, 1, 99, 0, 2, 50, 70, 71)] + ["new", "b"]
    )

    def text(known: Names, numbers: np.ndarray) -> list[str | None]:
        return known.lookup(np.ascontiguousarray(numbers)).to_pylist()

    assert found["texts"] == ("new", "b")
    assert found["pool"][0].tolist() == [7, 8, 9]
    assert found["items"][["on", "share"]].tolist() == items(3)[["on", "share"]].tolist()
    assert found["wide"][["share", "spare"]].tolist() == [(0.5, 0), (1.5, 0)]
    for column in waiting.columns:
        if column != "cluster":
            assert found["waiting"][column].tolist() == waiting[column].tolist(), column
    for mine, kept in (
        (values["ids"], found["ids"]),
        (values["pool"][1], found["pool"][1]),
        (values["items"]["name"], found["items"]["name"]),
        (values["wide"]["name"], found["wide"]["name"]),
        (waiting["cluster"], found["waiting"]["cluster"]),
    ):
        assert text(names, mine) == text(smaller, kept)
