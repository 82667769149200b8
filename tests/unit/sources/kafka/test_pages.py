"""Pages of exporters that hold anything: a bad line costs itself, and memory and time have bounds."""

from __future__ import annotations

import gc
import math
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config.exporters import shipped_mappings
from app.show.reconcile.scrape import parsed
from app.sources import prometheus_text
from app.sources.kafka.exported_rates import MOST, ExportedRates, decoded
from app.sources.kafka.quotas_poll import exported
from app.sources.polling import Unanswered
from app.sources.prometheus_text import ExportedSample, OmittedSamples, page_lines, samples

STRANGE = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r\0\ufeff\x1b\u202e"
NAME = "kafka_server_quota_byte_rate"
GOOD = [
    f'{NAME}{{resource="Produce",user="alice",}} 900.0',
    f'{NAME}{{resource="Fetch",user="bob",clientId="app"}} 1.5e3 1700000000000',
]
RECORDS = [("fetch", "bob", "app", 1_500_000), ("produce", "alice", "", 900_000)]
NAMES = st.text(st.characters(codec="utf-8") | st.sampled_from(STRANGE + '"\\,={}# \n'))


def escaped(name: str) -> str:
    """As exporters write the value of a label."""
    return name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def read(page: bytes, cut: int = 1 << 16) -> tuple[list[tuple[str, str, str, int]], OmittedSamples]:
    """The records of a page that comes in parts of so many bytes, and what is left out."""
    rates = ExportedRates(shipped_mappings()["jmx-exporter"], "east", "1")
    parts = (page[at : at + cut] for at in range(0, len(page), cut))
    records = rates.records(page_lines(parts), 0)
    columns = ("quota_type", "principal", "client_id", "value_milli")
    return [tuple(r[name] for name in columns) for r in records], rates.left  # type: ignore[misc]


def page_of(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@given(NAMES, st.integers(1, 50))
def test_any_name_is_read_as_it_is(name: str, cut: int) -> None:
    page = page_of(
        [GOOD[0], f'{NAME}{{resource="Produce",user="",clientId="{escaped(name)}"}} 2', GOOD[1]]
    )
    found, left = read(page, cut)
    wanted = decoded(name, "object_name")
    assert found == sorted([*RECORDS, ("produce", "", wanted, 2_000)])
    assert left == OmittedSamples()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n")), st.integers(0, 2))
def test_any_line_costs_itself(rest: str, at: int) -> None:
    """Whatever follows the name of a metric: the others are read; it is read, left out, or another."""
    lines = list(GOOD)
    lines.insert(at, f"{NAME}{rest}")
    found, left = read(page_of(lines))
    assert set(RECORDS) <= set(found)
    assert len(found) - len(RECORDS) + left.count <= 1


@pytest.mark.parametrize(
    "line",
    [
        f'{NAME}{{resource="Produce",user="x"}}',
        f'{NAME}{{resource="Produce",user="x"',
        f'{NAME}{{resource="Produce",user="x"}} ',
        f'{NAME}{{resource="Produce",user="x"}} 9x',
        f'{NAME}{{resource="Produce",user="x"}} 1_0',
        f'{NAME}{{resource="Produce",user="x"}} \u0661',
        f'{NAME}{{resource="Produce",user="x"}}\u20281',
        f'{NAME}{{resource="Produce",user="x"}} 0x10',
        f'{NAME}{{resource="Produce",user="x"}} 1 2 3',
        f'{NAME}{{resource="Produce",user="x",user="y"}} 1',
        f'{NAME}{{resource="Produce" user="x"}} 1',
        f'{NAME}{{resource="Produce",user=x}} 1',
        f'{NAME}{{resource="Produce",user="x"}} 1e308',
        f'{NAME}{{resource="Produce",user="x"}} -1e308',
        f'{NAME}{{resource="Produce",user="x"}} 1e999999999',
        f'{NAME}{{resource="Produce",user="x"}} {"9" * 5000}',
        f'{NAME}{{resource="Produce",user="x"}} +Inf',
        f'{NAME}{{resource="Produce",user="x"}} -Inf',
        f'{NAME}{{resource="Produce",user="x"}} {MOST}',
        f'{NAME}{{resource="Produce",user="{"x" * prometheus_text.MOST_OF_LINE}"}} 1',
    ],
)
def test_a_line_that_is_no_sample_is_told(line: str) -> None:
    found, left = read(page_of([GOOD[0], line, line, GOOD[1]]))
    assert found == RECORDS
    assert left.count == 2
    (problem,) = left.problems()
    assert problem.startswith("2 samples are left out, the first because ")
    assert len(problem) < 400 and problem.isprintable()


def test_what_has_no_number_is_no_sample() -> None:
    found, left = read(page_of([*GOOD, f'{NAME}{{resource="Produce",user="x"}} NaN']))
    assert (found, left) == (RECORDS, OmittedSamples())


@pytest.mark.parametrize("text", ["+Inf", "NaN", "1e308", "x", "-Inf"])
def test_a_bad_number_of_a_broker_of_pulsar_costs_itself(text: str) -> None:
    lines = [
        'pulsar_in_messages_total{cluster="c",topic="p://a\u2028b"} 5',
        f'pulsar_in_messages_total{{cluster="c",topic="p://x"}} {text}',
        f'pulsar_in_bytes_total{{cluster="c",topic="p://a\u2028b"}} {text}',
        f"process_start_time_seconds {text}",
        'pulsar_in_messages_total{cluster="c",topic="p://y\x85"} 7',
    ]
    found = parsed(page_lines([page_of(lines)]), "b:1", 0, 0)
    topics = {"p://a\u2028b": {"messages_in": 5.0}, "p://y\x85": {"messages_in": 7.0}}
    assert (found.topics, found.started_s) == (topics, 0.0)
    assert [text[:9] for text in found.problems] == ["3 samples"] * (text != "NaN")


# -- bounds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        NAME + "{" + "".join(f'l{n}="x",' for n in range(7000)) + "} 1",
        NAME + '{a="' + "\\\\" * 32_000 + '"} 1',
        NAME + '{a="' + '\\"' * 32_000,
        NAME + "{" + '",' * 32_000,
        NAME + "{" + " " * 65_000,
        NAME + " " + "9" * 65_000,
        NAME + "{}" + " 1" * 32_000,
        NAME + '{a="1"' * 10_000,
    ],
)
def test_a_line_takes_time_by_its_length(line: str) -> None:
    """Of eight lines at the bound; a label more costs no more than the one before."""
    began = time.monotonic()
    list(samples([line] * 8, [NAME], OmittedSamples()))
    assert time.monotonic() - began < 2.0


def growth_of(page: Iterator[bytes]) -> int:
    """Bytes that the records of a page take at most, with what it took to read them."""
    rates = ExportedRates(shipped_mappings()["jmx-exporter"], "east", "1")
    gc.collect()
    tracemalloc.start()
    try:
        rates.records(page_lines(page), 0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["u{}", "u{}" + "x" * 1000, "\u2028{}" * 50])
def test_records_of_a_page_take_no_more_than_its_bound(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever its names are, and however many there are."""
    bound = 1 << 20
    monkeypatch.setattr(samples, "__defaults__", (bound,))
    lines = (
        f'{NAME}{{resource="Produce",user="{name.replace("{}", str(n))}"}} {n}\n'.encode()
        for n in range(3 * bound // (prometheus_text.EACH + len(name)))
    )
    assert growth_of(lines) < bound + (1 << 19)


def test_a_line_without_an_end_is_not_kept() -> None:
    assert growth_of(b"x" * 100_000 for _ in range(200)) < 1 << 19
    assert growth_of(f"{NAME}".encode() + b"x" * 100_000 for _ in range(200)) < 1 << 20


def test_samples_are_numbers() -> None:
    lines = [f"{NAME} 5", f"{NAME}\t-1.", f"{NAME}{{}} .5 # {{}} 1", f"{NAME} inf\r", f"{NAME}s 1"]
    found = list(samples(lines, [NAME], OmittedSamples()))
    assert found == [ExportedSample(NAME, {}, value) for value in (5.0, -1.0, 0.5, math.inf)]


class Endless(BaseHTTPRequestHandler):
    """A page that never ends, of lines that take long to parse."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        labels = ",".join(f'l{n}="x"' for n in range(2000))
        line = f"{NAME}{{{labels}}} 1\n".encode()
        with suppress(OSError):
            while True:
                self.wfile.write(line * 100)

    def log_message(self, *_: object) -> None:
        """Nothing is said."""


def test_the_deadline_covers_reading_and_parsing() -> None:
    rates = ExportedRates(shipped_mappings()["jmx-exporter"], "east", "1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        began = time.monotonic()
        with pytest.raises(Unanswered, match="in time"):
            rates.records(exported(f"http://127.0.0.1:{server.server_port}/m", 0.5), 0)
        assert time.monotonic() - began < 5
    finally:
        server.shutdown()
        server.server_close()
