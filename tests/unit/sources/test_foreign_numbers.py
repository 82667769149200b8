"""Whatever number a line or a header of somebody else's tool has: the record is taken or refused by
name, and nothing else is touched."""

from __future__ import annotations

import re
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from app.contract.event_contract import parse_batch
from app.sources.pulsar.entries import stored
from app.sources.pulsar.position_range import Range
from app.sources.pulsar.pulsar_messages import FeedValues, records_of
from state.jobs import JOBS
from tests.support.broker_log_lines import LOG, batch, completed
from tests.support.broker_logs import put, unpack
from tests.support.servers.admin import AdminServer

NUMBERS = [
    "0",
    "-0",
    "-1",
    "1e19",
    "-1e19",
    "1e308",
    "1e400",
    "1E-400",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "4294967296",
    "0.5",
    "9" * 5000,
    "1" + "0" * 400,
    "NaN",
    "Infinity",
    "0x10",
    "\u0663",
    "abc",
    "",
    " 7",
    "1_0",
    "+5",
]
NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")


def verdicts(batches: list[pa.RecordBatch]) -> list[tuple[int, str | None]]:
    """Line and first reason of each record, None for a valid one."""
    found: list[tuple[int, str | None]] = []
    for records in batches:
        parsed = parse_batch(records, JOBS)
        reasons: dict[int, str] = {}
        for one in parsed.bad.to_pylist():
            reasons.setdefault(one["row"], one["reason_code"])
        lines = records.column("source_offset").to_pylist()
        found += [(line, reasons.get(row)) for row, line in enumerate(lines)]
    return sorted(found, key=lambda one: one[0])


@hypothesis.settings(max_examples=300)
@hypothesis.given(data=st.data())
def test_a_number_in_a_line_of_kafka_costs_that_line_alone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    lines = data.draw(
        st.sampled_from(
            [
                ("requests", [completed(7), completed(8), completed(9)]),
                ("dump", [LOG, batch(), batch(), batch()]),
            ]
        )
    )
    name, texts = lines
    victim = len(texts) - 2
    places = list(NUMBER.finditer(texts[victim]))
    place = data.draw(st.sampled_from(places))
    number = data.draw(st.sampled_from(NUMBERS)).encode()
    changed = texts[victim][: place.start()] + number + texts[victim][place.end() :]
    put(folder / "requests", *(completed(7),))
    calm = verdicts(unpack(folder / name, put(folder / name, *texts)))
    other = folder / f"changed-{name}"
    found = verdicts(unpack(other, put(other, *texts[:victim], changed, *texts[victim + 1 :])))
    assert [one for one in found if one[0] != victim] == [one for one in calm if one[0] != victim]


HEADERS = ("sequence-id", "chunk-id", "num-chunks-from-msg", "total-chunk-msg-size", "publish-time")


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_of_an_admin_interface_costs_its_entry_alone(header: str) -> None:
    good = {
        "publish-time": "2026-03-01T12:00:00.000Z",
        "producer-name": "p",
        "sequence-id": "4",
        "uuid": "u",
        "chunk-id": "0",
        "num-chunks-from-msg": "2",
        "total-chunk-msg-size": "20",
    }
    values = [v for v in NUMBERS if v.isascii() and v == v.strip() and len(v) < 1000]

    def answering(value: str | None) -> Any:
        def answer(handler: Any) -> None:
            handler.send_response(200)
            for key, text in (good if value is None else {**good, header: value}).items():
                handler.send_header(f"X-Pulsar-{key}", text)
            handler.send_header("Content-Length", "3")
            handler.end_headers()
            handler.wfile.write(b"abc")

        return answer

    with AdminServer() as server:
        path = "persistent/t/ns/a/ledger/5/entry"
        for number, value in enumerate([None, *values, None]):
            server.answers[f"{path}/{number}"] = answering(value)
        options = {"adminUrl": server.url}
        topic = "persistent://t/ns/a"
        entries = list(stored(options, topic, 5, range(len(values) + 2)))
    feed = FeedValues("pulsar_messages", "c", "east", "b1", "s")
    range_ = Range(topic=topic, name="a", begin="5:-1:0", end="5:99:0", queue=1)
    found = records_of(feed, range_, entries, "principal")
    by_entry: dict[int, set[str | None]] = {}
    parsed = parse_batch(found, JOBS)
    for one in parsed.bad.to_pylist():
        entry = found.column("entry_id")[one["row"]].as_py()
        by_entry.setdefault(entry, set()).add(one["reason_code"])
    assert len(entries) == len(values) + 2
    assert not {0, len(values) + 1} & by_entry.keys()
    numbers = {
        i + 1
        for i, v in enumerate(values)
        if re.fullmatch(r"-?(0|[1-9]\d{0,18})", v) and abs(int(v)) < 2**63
    }
    assert {i for i, reasons in by_entry.items() if reasons & {"BAD_TYPE", "MISSING_CLOCK"}} >= set(
        range(1, len(values) + 1)
    ) - numbers
