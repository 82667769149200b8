"""State as bytes: refused by name, exact at both ends of 64 bits, small once all is over."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.engine import codec
from state.engine.codec import StateFormatError
from state.engine.kernel import NULL
from tests.reference.job import judge
from tests.support.state_header import described
from tests.unit.state.canonical import canonical
from tests.unit.state.contract.jobs import JOBS
from tests.unit.state.trace import PARAMS, START_MS, START_NS, play, publish, record

S = 1_000_000_000
LIMIT = '{"scope": "topic", "name": "t/ns/a", "limits": {"publishRateInMsgs": 10}}'
LARGEST = 2**63 - 1


def some_state() -> bytes:
    states: list[bytes] = []
    play([[publish(0, messages=50), publish(S)]], policies=[LIMIT], states=states)
    return states[-1]


def test_64_bit_ends_survive_waiting_and_judging() -> None:
    end = LARGEST - 2 * S
    wall = START_MS
    base = [
        publish(0, seq=-(2**63), producer=LARGEST, size=LARGEST, sequence_id=-(2**63)),
        publish(0, seq=LARGEST, producer=2**53 + 1, size=0, messages=0, sequence_id=LARGEST),
        publish(0, seq=2**53 + 1, producer=0, messages=2**31 - 1, size=2**53 + 1),
        record(
            "entry_added",
            0,
            seq=5,
            topic="persistent://t/ns/a",
            ledger_id=LARGEST,
            entry_id=LARGEST,
            entry_bytes=LARGEST,
        ),
        record(
            "policy",
            0,
            seq=6,
            policy_json=json.dumps(
                {
                    "scope": "topic",
                    "name": "t/ns/a",
                    "limits": {"publishRateInMsgs": LARGEST, "publishRateInBytes": LARGEST},
                }
            ),
        ),
        publish(0, seq=7, producer=LARGEST, size=LARGEST),
        publish(0, seq=8, producer=LARGEST, size=LARGEST - 1),
    ]
    records = [
        {**r, "ts_mono_ns": end + i * S // 4, "ts_wall_ms": wall + i * 250}
        for i, r in enumerate(base)
    ]
    expected = judge(records, PARAMS, [LIMIT], wall + 1_600)
    for batches in ([records], [[r] for r in records]):
        got = play(batches, policies=[LIMIT], drain_ms=1_600)
        assert JOBS["rate_limits"].in_order(got) == JOBS["rate_limits"].in_order(expected)
    assert [r["bytes"] for r in expected["publish_verdicts"]] == [
        LARGEST,
        0,
        2**53 + 1,
        LARGEST,
        LARGEST - 1,
    ]


def test_state_shrinks_when_all_is_closed_and_idle() -> None:
    topics = [f"persistent://t/ns/topic-{i}" for i in range(300)]
    limit = '{"scope": "namespace", "name": "t/ns", "limits": {"publishRateInMsgs": 5}}'
    busy = [
        publish(i * 1_000_000, topic=t, cnx=f"c{i % 40}", producer=i, messages=9, seq=i)
        for i, t in enumerate(topics)
    ]
    over = [record("connection_closed", 20 * S, seq=400 + i, cnx_id=f"c{i}") for i in range(40)]
    params = {"idle_state_ms": 60_000, "stats_window_ms": 10_000}
    states: list[bytes] = []
    play([busy, over, []], params, [limit], drain_ms=200_000, states=states)
    left = canonical(states[-1], (limit,))
    (broker,) = left["brokers"].values()
    kept = {
        part: len(broker[part])
        for part in ("limiters", "topics", "cnxs", "links", "producers", "timers")
    }
    assert kept == {"limiters": 1, "topics": 0, "cnxs": 0, "links": 0, "producers": 0, "timers": 0}
    assert left["waiting"] == []
    before, after = (described(states[i])["bytes"] for i in (1, -1))
    assert after < 1_000 < 100_000 < before


def test_times_above_53_bits_are_kept() -> None:
    rows = play([[publish(1)]], policies=[LIMIT], drain_ms=100_000)
    assert START_NS > 2**53
    assert rows["publish_verdicts"][0]["ts_mono_ns"] == START_NS + 1


LAYOUT = np.dtype([("a", "<i8"), ("flag", "|u1"), ("b", "<f8"), ("c", "<i8", (3,))], align=True)
SHAPED = {
    "plain": np.arange(5),
    "none": np.zeros(0, np.int8),
    "wide": np.arange(12.0).reshape(4, 3),
    "empty": np.zeros((3, 0), np.int64),
    "words": np.array([NULL, 2**60, LARGEST, 7, NULL + 1]),
    "rows": np.zeros(700, LAYOUT),
    "few": np.array(
        [(1, 2.5, (3, 4)), (-1, 0.0, (5, 6))],
        np.dtype([("a", "i1"), ("b", "f8"), ("c", "i4", (2,))]),
    ),
    "many": np.array([(i, -i) for i in range(41)], [("a", "i8"), ("b", "i2")]),
}
SHAPED["rows"]["a"] = NULL + 9 * np.arange(700)
SHAPED["rows"]["flag"], SHAPED["rows"]["b"] = 1, -0.0
SHAPED["rows"]["c"][:, 1] = np.arange(700) ** 4


def aligned(kind: np.dtype[Any]) -> np.dtype[Any]:
    """A type with fields as states have it."""
    return np.dtype([(f, kind[f].base, kind[f].shape) for f in kind.names or ()], align=True)


def test_arrays_come_back_whatever_their_shape() -> None:
    data = codec.encode("backlog", 7, SHAPED)
    assert codec.decode("backlog", 7, bytearray(data)).keys() == SHAPED.keys()  # as Spark has it
    found = codec.decode("backlog", 7, data)
    assert list(found) == list(SHAPED)
    for name, array in SHAPED.items():
        assert found[name].shape == array.shape
        assert repr(found[name].tolist()) == repr(array.tolist())
        assert found[name].flags.writeable
    header = described(data)
    assert (header["job"], header["version"]) == ("backlog", 7)
    assert [a["length"] for a in header["arrays"]] == [len(a) for a in SHAPED.values()]
    with pytest.raises(StateFormatError, match="version 7, this release reads 8"):
        codec.decode("backlog", 8, data)


def test_arrays_that_change_their_form_are_written_as_they_are() -> None:
    """The header is kept from one write to the next only while it holds."""
    other = {**SHAPED, "wide": np.zeros((2, 7), np.int32)}
    for arrays in (SHAPED, other, {"plain": SHAPED["few"]}, SHAPED):
        found = codec.decode("chunks", 1, codec.encode("chunks", 1, arrays))
        assert {n: repr(a.tolist()) for n, a in found.items()} == {
            n: repr(a.tolist()) for n, a in arrays.items()
        }
        assert all(found[n].shape == arrays[n].shape for n in arrays)


@given(
    st.lists(
        st.one_of(
            st.just(int(NULL)),
            st.integers(0, 300),
            st.integers(2**40, 2**40 + 2**20),
            st.integers(-(2**63), LARGEST),
        ),
        max_size=600,
    ),
    st.integers(1, 4),
)
def test_words_come_back_whatever_their_range(values: list[int], fields: int) -> None:
    rows = np.zeros(len(values), [(f"f{i}", "<i8") for i in range(fields)])
    for i in range(fields):
        rows[f"f{i}"] = np.roll(np.array(values, np.int64), i) >> 7 * i
    found = codec.decode(
        "chunks", 1, codec.encode("chunks", 1, {"plain": rows["f0"], "rows": rows})
    )
    assert found["plain"].tolist() == values
    assert found["rows"].tolist() == rows.tolist()


def test_large_arrays_and_those_in_pieces_are_packed_as_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrays = {
        name: np.arange(length).view(kind)
        for name, length, kind in (
            ("few", 3, "<i8"),
            ("none", 0, "<i8"),
            ("many", 40, "<i8"),
            ("rows", 60, [("a", "<i8"), ("b", "<i8")]),
            ("bytes", 5, [(f"b{i}", "|u1") for i in range(8)]),
            ("last", 2, "<i8"),
        )
    }
    together = codec.encode("chunks", 1, arrays)
    monkeypatch.setattr(codec, "_LARGE", 30)
    assert codec.encode("chunks", 1, arrays) == together
    rows = arrays["rows"]
    for large in (30, 10**6):
        monkeypatch.setattr(codec, "_LARGE", large)
        pieces = {**arrays, "rows": [rows[:9], rows[9:9], rows[9:]], "none": [arrays["none"]]}
        assert codec.encode("chunks", 1, pieces) == together
    found = codec.decode("chunks", 1, together)
    assert {name: found[name].tolist() for name in arrays} == {
        name: array.tolist() for name, array in arrays.items()
    }


def test_equal_values_take_no_bytes() -> None:
    same = np.full(100_000, 2**62 + 1)
    assert len(codec.encode("chunks", 1, {"a": same})) < 200
