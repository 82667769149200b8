"""The command `metrics`: what it prints, serves, refuses, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from app.cli import main
from app.config.settings import load_settings
from app.errors import UserError
from app.show.metrics.catalogue import METRICS
from app.show.metrics.serve import exporting
from app.tables.manifest import LAYOUT_VERSION
from app.tables.small_files import RECONCILE
from tests.support.client_quota_rows import stats, usage
from tests.support.throttle_rows import event, write
from tests.support.waiting import wait_for
from tests.unit.show.metrics.rows import every, fill, topic_window

ODD = 'persistent://acme/orders/"quoted" \\ back\nline {x="1"} ü 🙂'


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("metrics") / "warehouse")
    fill(
        folder,
        every(),
        {
            "client_quota_stats": [stats(0, used=1.2, throttled=3, bound_level="default_user")],
            "client_usage": [usage(0, "scan", 100 << 20)],
        },
    )
    checks = {"1.0": 3, "+Inf": 4, "count": 4, "sum": 2.5}
    Path(folder, "_weir").mkdir(exist_ok=True)
    Path(folder, RECONCILE).write_text(
        json.dumps(
            {
                "scrapes": {
                    "b1": [{"cluster": "east", "broker": "b1", "checks": checks}],
                }
            }
        )
    )
    return folder


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["metrics", *words])
    out, err = capsys.readouterr()
    return code, out, err


def scrape(url: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as found:
        return str(found.read().decode())


def up(url: str) -> float:
    return {m.name: m.samples for m in plain_text(scrape(url))}["weir_exporter_up"][0].value


@contextmanager
def serving(warehouse: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """The command as a process of its own, the address it serves on and the lines of its log."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "app.main",
            "metrics",
            "--warehouse",
            warehouse,
            "--listen",
            "127.0.0.1:0",
            "--refresh",
            "1s",
            *words,
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    log: list[str] = []
    try:
        first = process.stderr.readline()
        found = re.search(r"http://\S+", first)
        assert found, first
        reader = threading.Thread(target=lambda: log.extend(process.stderr or ()), daemon=True)
        reader.start()
        yield process, found[0], log
    finally:
        process.kill()
        process.wait()
        reader.join()


def test_once_prints_every_metric_of_the_catalogue_and_nothing_else(
    warehouse: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "weir.yaml"
    config.write_text(
        f"warehouse: {warehouse}\nowners: [{{tenant: '*', team: base}}]\n"
        "alerts: {runbook_base: 'https://git.example.com/weir/blob/main/'}\n"
    )
    code, out, err = run(capsys, "--once", "--config", str(config), "--idle", "999999999s")
    assert (code, err) == (0, "")
    found: dict[str, set[str]] = {}
    for metric in plain_text(out):
        for sample in metric.samples:
            name = metric.name if metric.type == "histogram" else sample.name
            found.setdefault(name, set()).update(sample.labels)
    unseen = {"weir_exporter_errors_total"} | {n for n in METRICS if n.startswith("weir_query_")}
    assert set(found) == set(METRICS) - unseen
    assert 'weir_alerts_info{runbook_base="https://git.example.com/weir/blob/main"} 1.0' in out
    for name, labels in found.items():
        assert labels <= set(METRICS[name].labels)


def test_once_prints_json(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--once", "--json", "--warehouse", warehouse)
    found = {metric["name"]: metric for metric in json.loads(out)}
    assert code == 0
    assert found["weir_exporter_up"] == {
        "name": "weir_exporter_up",
        "type": "gauge",
        "help": METRICS["weir_exporter_up"].meaning,
        "samples": [{"labels": {}, "value": 1.0}],
    }
    assert found["weir_published_messages_total"]["type"] == "counter"
    checks = "pulsar_storage_backlog_quota_check_duration_seconds"
    of = {"cluster": "east", "broker": "b1"}
    assert [found[f"{checks}_{part}"]["samples"] for part in ("bucket", "count", "sum")] == [
        [{"labels": {**of, "le": "1.0"}, "value": 3}, {"labels": {**of, "le": "+Inf"}, "value": 4}],
        [{"labels": of, "value": 4}],
        [{"labels": of, "value": 2.5}],
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--listen", "9464"], "metrics.listen: '9464' is not an address"),
        (["--listen", "127.0.0.1:99999"], "is not an address"),
        (["--top", "0"], "metrics.top"),
        (["--refresh", "0"], "--refresh 0: allowed: more than 0"),
        (["--json"], "--json goes with --once"),
        (["--once"], "does not exist"),
    ],
)
def test_mistakes_are_answered_in_at_most_two_lines(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *words, "--warehouse", str(tmp_path / "none"))
    assert (code, out) == (2, "")
    assert message in err and len(err.splitlines()) <= 2


def test_a_port_in_use_is_a_clear_error(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, out, err = run(capsys, "--warehouse", warehouse, "--listen", address)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"weir: metrics.listen: {address}: Address already in use",
        "another program may hold the port: choose one with --listen HOST:PORT",
    ]


def test_odd_names_come_through_both_formats_and_sigterm_ends_it(tmp_warehouse: str) -> None:
    write(tmp_warehouse, "topic_throttle_stats", [topic_window(0, ODD, "culprit", 2)])
    with serving(tmp_warehouse) as (process, url, log):
        wait_for(lambda: up(url) == 1)
        for parse, text in (
            (plain_text, scrape(url)),
            (open_metrics, scrape(url, Accept="application/openmetrics-text; version=1.0.0")),
        ):
            samples = [s for m in parse(text) for s in m.samples]
            (found,) = [s for s in samples if s.name == "pulsar_publish_rate_limit_times"]
            assert (found.labels["topic"], found.value) == (ODD, 2)
        # What is committed later is in a later scrape.
        write(tmp_warehouse, "topic_throttle_stats", [topic_window(1, ODD, "culprit", 5)])
        wait_for(lambda: "weir_topic_pauses_total" in scrape(url) and pauses(scrape(url)) == 7)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert log == []


def answer(url: str, method: str = "GET") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method)) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_and_readiness_stand_beside_the_metrics_and_nothing_else(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    logged: list[str] = []
    settings = load_settings(
        None,
        {
            "warehouse": str(warehouse),
            "metrics": {"listen": "127.0.0.1:0", "refresh_s": 1},
        },
    )
    with exporting(settings, logged.append):
        base = logged[0].split()[-1].removesuffix("/metrics")
        wait_for(lambda: len(logged) == 2)
        assert answer(f"{base}/healthz") == (200, "ok\n")
        code, text = answer(f"{base}/ready")
        assert code == 503 and "does not exist" in text
        (warehouse / "_weir").mkdir(parents=True)
        wait_for(lambda: answer(f"{base}/ready") == (200, "ok\n"))
        assert answer(f"{base}/ready", "HEAD") == (200, "")
        assert answer(f"{base}/ready", "POST")[0] == 405
        assert answer(f"{base}/metrics")[1].startswith("# HELP ")
        for path in ("", "/", "/metric", "/metrics/", "/favicon.ico", "/ready/x"):
            assert answer(base + path) == (404, "paths: /metrics, /healthz, /ready\n")
    reason = ["the queries are being started"]
    with exporting(settings, logged.append, obstacle=lambda: reason[0]):
        base = logged[-1].split()[-1].removesuffix("/metrics")
        assert answer(f"{base}/ready") == (503, "the queries are being started\n")
        reason[0] = ""
        assert answer(f"{base}/ready") == (200, "ok\n")


def pauses(text: str) -> float:
    return sum(
        s.value for m in plain_text(text) for s in m.samples if s.name == "weir_topic_pauses_total"
    )


def test_a_warehouse_that_is_missing_empty_newer_or_broken_leaves_it_up(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    logged: list[str] = []
    settings = load_settings(
        None,
        {
            "warehouse": str(warehouse),
            "metrics": {"listen": "127.0.0.1:0", "refresh_s": 1},
        },
    )

    def errors() -> dict[str, float]:
        return {
            s.labels.get("table", ""): s.value
            for m in plain_text(scrape(url))
            for s in m.samples
            if s.name == "weir_exporter_errors_total"
        }

    with exporting(settings, logged.append):
        url = logged[0].split()[-1]
        wait_for(lambda: len(logged) == 2)
        assert "does not exist" in logged[1] and up(url) == 0 and errors()[""] >= 1
        # It comes, and has nothing in it yet.
        (warehouse / "_weir").mkdir(parents=True)
        wait_for(lambda: up(url) == 1)
        write(str(warehouse), "throttle_events", [event(0, "mark")])
        write(str(warehouse), "topic_throttle_stats", [topic_window(0, "t", "culprit", 2)])
        wait_for(lambda: "pulsar_broker_throttled_connections{" in scrape(url))
        # A newer Weir takes one table over: the others go on.
        log = warehouse / "throttle_events" / "_delta_log"
        (log / f"{1:020}.json").write_text(
            json.dumps({"commitInfo": {"timestamp": 1}})
            + "\n"
            + json.dumps(
                {
                    "protocol": {
                        "minReaderVersion": 3,
                        "minWriterVersion": 7,
                        "readerFeatures": ["holograms"],
                        "writerFeatures": ["holograms"],
                    }
                }
            )
            + "\n"
        )
        wait_for(lambda: up(url) == 0)
        write(str(warehouse), "topic_throttle_stats", [topic_window(1, "t", "culprit", 2)])
        wait_for(lambda: pauses(scrape(url)) == 4)
        assert errors()["throttle_events"] >= 1
        assert "throttle_events" in logged[2] and "holograms" in logged[2]
        # A newer layout stops the reading, not the serving; what was read stays.
        manifest = {"layout_version": LAYOUT_VERSION + 1}
        (warehouse / "_weir" / "manifest.json").write_text(json.dumps(manifest))
        wait_for(lambda: any("layout version" in text for text in logged))
        assert up(url) == 0 and pauses(scrape(url)) == 4
        assert len(logged) == len(set(logged)), "each problem is logged once"
    with pytest.raises(urllib.error.URLError):
        scrape(url)


def test_a_reading_that_hangs_makes_it_old_and_never_slow(
    tmp_warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_warehouse, "topic_throttle_stats", [topic_window(0, "t", "culprit", 2)])
    settings = load_settings(
        None,
        {
            "warehouse": tmp_warehouse,
            "metrics": {"listen": "127.0.0.1:0", "refresh_s": 1},
        },
    )
    logged: list[str] = []
    hangs, ended = threading.Event(), threading.Event()
    from app.show.metrics import health

    def slow(_: Any) -> Iterator[Any]:
        if hangs.is_set():
            ended.wait()
        return iter(())

    monkeypatch.setattr(health, "samples", slow)
    with exporting(settings, logged.append):
        url = logged[0].split()[-1]
        wait_for(lambda: up(url) == 1)
        hangs.set()
        wait_for(lambda: up(url) == 0)
        assert pauses(scrape(url)) == 2
        hangs.clear()
        ended.set()
        wait_for(lambda: up(url) == 1)


def test_an_address_that_cannot_be_had_is_refused_before_a_run_works() -> None:
    settings = load_settings(None, {"metrics": {"listen": "192.0.2.1:9464"}})
    with (
        pytest.raises(UserError, match=r"metrics\.listen: 192\.0\.2\.1:9464: "),
        exporting(settings, print),
    ):
        raise AssertionError("nothing listens there")
