"""What a record takes at the bounds of its columns: memory and time, whatever it holds."""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from app.contract.event_contract import parse
from app.contract.parsing.block import MOST_DOCUMENT_BYTES, MOST_TEXT_BYTES
from app.contract.parsing.decoder import MOST_TEXTS
from app.contract.validation import MOST_OF_DETAIL
from state.events import COLUMNS
from state.jobs import JOBS

MOST_BESIDE, MOST_S = 32 << 20, 10.0
"""What SECURITY.md allows besides four times the size of a record, and seconds."""
TEXTS = [c.name for c in COLUMNS if c.type == pa.string()]
FILLS: dict[str, list[str]] = {
    "acked_ranges": ["1:0..1,", "0:0..0,1:1..,"],
    "policy_json": ['{"a":{},', "[[],", '"a":1,', "{}"],
    "topic_bytes": ['"a":1,', '"\\u0041":1,'],
}
WHOLE = {
    "acked_ranges": lambda text: text[: text.rindex(",")],
    "topic_bytes": lambda text: "{" + text[: text.rindex(",")] + "}",
}


POOLS: list[pa.MemoryPool] = []
"""They live as long as what was made in them."""


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """What parses is loaded before it would be measured."""
    parse(pa.array([b"{}", record(seq="x").encode()], pa.binary()), JOBS)


def cost(line: str) -> tuple[int, float, pa.Table]:
    """Bytes that the parsing of a line takes at most, seconds, and the broken rules."""
    values = pa.array([line.encode()], pa.binary())
    gc.collect()
    pool = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(pool)
    POOLS.append(counted)
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        began = time.process_time()
        bad = parse(values, JOBS).bad
        seconds = time.process_time() - began
        return tracemalloc.get_traced_memory()[1] + counted.max_memory(), seconds, bad
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(pool)


def filled(column: str, fill: str, size: int) -> str:
    text = fill * (size // len(fill.encode()))
    return WHOLE.get(column, str)(text)[:size] if "," in fill else text


def record(**columns: Any) -> str:
    base = {"event_type": "policy", "source_feed": "kafka", "cluster": "c", "broker": "b"}
    return json.dumps({**base, "ts_wall_ms": 1, "ts_mono_ns": 1, **columns}, ensure_ascii=False)


CASES = [
    (column, fill, MOST_DOCUMENT_BYTES.get(column, MOST_TEXT_BYTES) + over)
    for column in TEXTS
    for fill in FILLS.get(column, ["x"] if column != "topic" else ["x", "\u00e9", "/", "\\"])
    for over in (0, 4096)
    if not over or column in (*FILLS, "topic")
]


@pytest.mark.parametrize(("column", "fill", "size"), CASES)
def test_a_text_at_its_bound_takes_what_is_allowed(column: str, fill: str, size: int) -> None:
    line = record(**{column: filled(column, fill, size)})
    taken, seconds, _ = cost(line)
    assert taken <= 4 * len(line.encode()) + MOST_BESIDE, taken / len(line)
    assert seconds < MOST_S


@pytest.mark.parametrize(
    ("value", "reasons"),
    [
        ([""] * (MOST_TEXTS - 20), {"BAD_POSITION"}),
        (["1:1"] * (MOST_TEXTS - 20), set()),
        (["1:1"] * MOST_TEXTS, {"UNPARSEABLE"}),
        (["x" * 8] * 1_000_000, {"UNPARSEABLE"}),
        ([1] * 1_000_000, {"BAD_TYPE"}),
        ([[]] * 1_000_000, {"BAD_TYPE"}),
    ],
)
def test_a_list_at_its_bound_takes_what_is_allowed(value: list[Any], reasons: set[str]) -> None:
    line = record(event_type="cursor_state", marker_ids=value)
    taken, seconds, bad = cost(line)
    assert taken <= 4 * len(line) + MOST_BESIDE, taken / len(line)
    assert seconds < MOST_S
    others = {"MISSING_REQUIRED", "MISSING_CLOCK"}
    assert set(bad["reason_code"].to_pylist()) - others == reasons


@pytest.mark.parametrize("members", ['"k{}":1,', '"k{}":{{}},', '"cluster":"x{}",'])
def test_a_record_of_many_members_takes_what_is_allowed(members: str) -> None:
    """Also where a value of another column does not fit, so that it is decoded by column."""
    some = "".join(members.format(n) for n in range(60_000))
    for first in ('"seq":1', '"seq":"x"'):
        line = "{" + some + first + "}"
        taken, seconds, _ = cost(line)
        assert taken <= 4 * len(line) + MOST_BESIDE, taken / len(line)
        assert seconds < MOST_S


def test_a_longer_document_is_refused_by_name() -> None:
    document = json.dumps({"scope": "topic", "name": "x" * MOST_DOCUMENT_BYTES["policy_json"]})
    (row,) = cost(record(policy_json=document))[2].to_pylist()
    assert (row["reason_code"], row["detail"]) == ("BAD_TYPE", "policy_json")


def test_a_detail_is_cut() -> None:
    limits = {f"unknown-{n}": 1 for n in range(10_000)}
    document = json.dumps({"scope": "user", "name": "u", "limits": limits})
    (row,) = cost(record(policy_json=document))[2].to_pylist()
    assert row["reason_code"] == "BAD_POLICY"
    assert row["detail"].startswith("unknown limits 'unknown-0','unknown-1',")
    assert len(row["detail"]) == MOST_OF_DETAIL
    long = record(event_type="bad_document", problem="p" * 10_000)
    rows = {r["reason_code"]: r["detail"] for r in cost(long)[2].to_pylist()}
    assert rows["BAD_DOCUMENT"] == "p" * MOST_OF_DETAIL
