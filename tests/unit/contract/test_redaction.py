"""What is kept of a refused record: no payload in any spelling, and memory within bounds."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.contract.redaction import MOST_KEPT, MOST_OF_NO_JSON, redact
from tests.support.effort import SLOW

SECRET = b"the customer's own words " * 3
TEXT = base64.b64encode(SECRET).decode()
ESCAPED = "".join(f"\\u{ord(c):04x}" for c in TEXT)
NAMES = [
    '"payload"',
    '"\\u0070ayload"',
    '"p\\u0061yloa\\u0064"',
    '"Payload"',
    '"PAYLOAD"',
    '"\\u0050AYLOAD"',
    '"".join(payload)',
    "'payload'",
    "payload",
    "PayLoad",
]


@pytest.mark.parametrize(
    "value",
    [
        f'"{TEXT}"',
        f'"{ESCAPED}"',
        f'"\\"{TEXT}"',
        f'["{TEXT}"]',
        f'[[1, {{"x": "{TEXT}"}}]]',
        f'{{"payload": {{"x": "{TEXT}"}}}}',
        f'"{TEXT}',
        f"'{TEXT}'",
        TEXT,
        f'"a" "{TEXT}"',
        f'[1, "{TEXT}"',
    ],
    ids=[
        "text",
        "escaped",
        "with a quote",
        "in a list",
        "deeper",
        "in an object",
        "cut off",
        "in other quotes",
        "bare",
        "two",
        "an open list",
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        '{{"a":1,{}:{},"b":2}}',
        "{{{}  :\n {}}}",
        '[{{"x": {{{}: {}}}}}]',
        "{}={}",
        '{{"a": "x, {}: {}}}',
        "\ufeff{{{}: {}}}",
    ],
    ids=["first", "spaces", "nested", "no json", "an open string", "byte order mark"],
)
def test_no_text_of_a_payload_is_kept(value: str, form: str) -> None:
    kept = {name: redact(form.format(name, value).encode()).decode() for name in NAMES}
    wrong = {
        name: text
        for name, text in kept.items()
        if TEXT[:8] in text or ESCAPED[:24] in text or "characters left out, CRC-32" not in text
    }
    assert wrong == {}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_nor_in_another_encoding(encoding: str) -> None:
    raw = json.dumps({"a": 1, "payload": TEXT}).encode(encoding)
    assert redact(raw).decode(encoding, "ignore").find(TEXT[:8]) < 0
    assert TEXT[:8].encode(encoding)[-8:] not in redact(raw)


def test_a_repeated_name_is_replaced_each_time() -> None:
    raw = f'{{"payload":"{TEXT}","payload":null,"payload":["{TEXT}"],"a":1}}'
    assert TEXT not in redact(raw.encode()).decode()


def test_what_is_no_payload_stays() -> None:
    for raw in (
        b'{"payload":null,"a":"payload"}',
        b"not json",
        b'{"payloads":"x"}',
        b"",
        b'{"topic":"acme/payload/x","entry_id":-1}',
        b'["payload", "x"]',
        b'{"a":"payload","b":"x"}',
        b'{"a": 1',
        b"\xff\xfe",
    ):
        assert redact(raw) == raw
    short = json.loads(redact(b'{"a":1,"payload":"YQ==","b":"x"}'))
    assert short == {
        "a": 1,
        "b": "x",
        "payload": f"4 characters left out, CRC-32 {zlib.crc32(b'YQ=='):08x}",
    }


def test_of_no_json_the_beginning_is_kept() -> None:
    raw = b"2026-01-05 payload: abc def"
    rest = len(b"payload: abc def")
    assert redact(raw).startswith(b'2026-01-05  "%d characters left out' % rest)
    assert redact(b"x" * (MOST_OF_NO_JSON + 5)).startswith(b"x" * MOST_OF_NO_JSON + b' "5 char')
    long = json.dumps({"topic": "x" * (MOST_KEPT + 1)}).encode()
    assert len(redact(long)) < MOST_OF_NO_JSON + 100


@given(
    st.recursive(
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.text(max_size=10), st.just("payload")
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["a", "payload", "Payload", "b c", '"']), inner, max_size=3
            ),
        ),
        max_leaves=12,
    ),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_json_stays_json_and_only_payloads_change(document, indent, ascii_only) -> None:
    def plain(value):
        if isinstance(value, dict):
            return {
                k: v if v is None or k.lower() != "payload" else "left out"
                for k, v in ((k, plain(v)) for k, v in value.items())
            }
        return [plain(v) for v in value] if isinstance(value, list) else value

    def marked(value):
        if isinstance(value, dict):
            return {
                k: "left out" if k.lower() == "payload" and v is not None else marked(v)
                for k, v in value.items()
            }
        return [marked(v) for v in value] if isinstance(value, list) else value

    raw = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode()
    kept = json.loads(redact(raw))
    assert marked(kept) == plain(document)


@given(st.binary(max_size=200), st.binary(max_size=100))
def test_any_bytes_are_read(before: bytes, after: bytes) -> None:
    kept = redact(before + f'"payload": "{TEXT}"'.encode() + after)
    assert TEXT.encode() not in kept


MEMORY = """
import json, sys
import pyarrow as pa
from app.contract.event_contract import parse
from app.engine.archive_task import events_rows, quarantine_rows
from state.jobs import JOBS
from tests.unit.contract.records import record

def bytes_of(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return int(line.split()[1]) << 10

def read(lines):
    batch = pa.record_batch({
        "value": pa.array(lines, pa.binary()), "source_partition": ["0"] * len(lines),
        "source_offset": list(range(len(lines))),
    })
    lines.clear()
    parsed = parse(batch.column("value"), JOBS)
    return events_rows(parsed, batch, 0).num_rows + quarantine_rows(parsed, batch, 0).num_rows

def line_of(kind, size):
    large = {
        "escaped": "\\\\/" * (size // 2), "brackets": "[" * size, "no base64": "!" * size,
        "quotes": '\\\\"' * (size // 2), "unicode": "\u00e9" * (size // 2),
    }.get(kind, "A" * size)
    if kind == "topic":
        return json.dumps({**record("dispatch", ledger_id=-1), "topic": large}).encode()
    bad = {} if kind == "taken" else {"ledger_id": -1}
    whole = json.dumps(record("dispatch", payload="@", **bad))
    if kind in ("unclosed", "brackets"):
        return (whole[:whole.index('"@"')] + '"' * (kind == "unclosed") + large).encode()
    return whole.replace("@", large).encode()

small = [json.dumps(record("dispatch", payload="YQ==", **bad)).encode()
         for bad in ({}, {"ledger_id": -1})]
size = int(sys.argv[1]) << 20
for warm in (1, 0):
    for kind in ("taken", "refused", "no base64", "escaped", "unclosed", "brackets", "quotes",
                 "unicode", "topic"):
        others = 20_000 if kind == "taken" or not warm else 10
        lines = [line_of(kind, 1000 if warm else size), *small, b"{", *[b'{"a": 1}'] * others]
        expected = len(lines)
        open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
        before = bytes_of("VmRSS")
        assert read(lines) >= expected, kind
        if not warm:
            print(kind.replace(" ", "-"), (bytes_of("VmHWM") - before) / size)
"""


def test_memory_grows_by_at_most_four_times_a_record() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, "100" if SLOW else "50"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    grown = {kind: float(by) for kind, by in (line.split() for line in done.stdout.splitlines())}
    assert len(grown) == 9
    assert {kind: by for kind, by in grown.items() if by > 4} == {}
