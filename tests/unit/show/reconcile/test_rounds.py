"""Rounds: a span is compared once, when Weir has processed it, and its rows are written once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from app.cli import main
from app.config.location import Location
from app.config.settings import Settings
from app.errors import UserError
from app.show.reconcile import brokers
from app.show.reconcile.comparing import ReadingMemory, one_round
from app.show.reconcile.scrape import Scrape
from app.show.reconcile.spans import differs
from app.tables.run_lock import Busy, only_reconciliation
from app.tables.small_files import RECONCILE, read_text
from tests.support.servers.admin import AdminServer, status
from tests.support.throttle_rows import TOPIC

Json = dict[str, Any]


@pytest.fixture
def server() -> Iterator[AdminServer]:
    with AdminServer() as found:
        yield found


@pytest.fixture
def settings(server: AdminServer, make_settings: Callable[..., Settings]) -> Settings:
    """One broker, whose spans settle at once; nothing is ever written by a job."""
    return make_settings(reconcile=section(server))


@pytest.fixture
def hasty(server: AdminServer, make_settings: Callable[..., Settings]) -> Settings:
    """The same without waiting for Weir."""
    return make_settings(reconcile=section(server, wait_ms=0))


def section(server: AdminServer, **keys: Any) -> Json:
    return {"brokers": [server.url], "settle_ms": 0, "retries": 0, **keys}


def count(server: AdminServer, messages: int, started_s: float = 5.0) -> None:
    """The broker's answer from now on."""
    server.answers["/metrics/"] = status(
        200,
        "\n".join(
            [
                f'pulsar_in_messages_total{{cluster="east",topic="{TOPIC}"}} {messages}',
                f'process_start_time_seconds{{cluster="east"}} {started_s}',
                "",
            ]
        ),
    )


def stored(settings: Settings) -> list[Json]:
    path = f"{settings.warehouse}/reconciliation"
    found: list[Json] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return found


def test_the_first_reading_is_the_begin_of_the_first_span(
    server: AdminServer, settings: Settings
) -> None:
    count(server, 100)
    first = one_round(settings)
    broker = server.url.removeprefix("http://")
    assert (first.first, first.rows, first.waiting, first.problems) == ([broker], [], 0, [])
    count(server, 100)
    assert one_round(settings).rows == []  # 0 on both sides
    assert stored(settings) == []


def test_a_span_waits_for_weir_and_is_compared_in_the_end(
    server: AdminServer, settings: Settings, hasty: Settings
) -> None:
    count(server, 100)
    one_round(settings)
    count(server, 130)
    for spans in (1, 2):
        waiting = one_round(settings)
        assert (waiting.rows, waiting.waiting) == ([], spans)
    (row,) = one_round(hasty).rows
    assert (row["broker_value"], row["weir_value"], row["difference"], row["reason"]) == (
        30,
        0,
        30,
        "NOT_REACHED",
    )
    assert not differs(row)
    assert stored(hasty) == [row]


def test_a_crash_neither_loses_nor_repeats_rows(
    server: AdminServer, hasty: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    count(server, 100)
    one_round(hasty)
    count(server, 130)
    keep = ReadingMemory.keep

    def crash(memory: ReadingMemory[Any], of: Location) -> None:
        if not memory.rows:  # they have just been appended
            raise KeyboardInterrupt
        keep(memory, of)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ReadingMemory, "keep", crash)
        one_round(hasty)
    rows = stored(hasty)
    assert [row["broker_value"] for row in rows] == [30]
    assert json.loads(read_text(hasty.location, RECONCILE) or "")["rows"] == rows
    one_round(hasty)
    assert stored(hasty) == rows
    assert json.loads(read_text(hasty.location, RECONCILE) or "")["rows"] == []


def test_a_restart_of_the_broker_has_no_number(server: AdminServer, settings: Settings) -> None:
    count(server, 100)
    one_round(settings)
    count(server, 30, started_s=6.0)
    one_round(settings)
    # 0 of Weir and none of the broker: nothing to show.
    assert stored(settings) == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (status(503), "metrics/: status 503"),
        (status(200, "hello"), "none of the metrics"),
    ],
)
def test_a_broker_without_an_answer_is_reported_and_its_span_grows(
    server: AdminServer, settings: Settings, answer: Any, said: str
) -> None:
    count(server, 100)
    one_round(settings)
    before = ReadingMemory.load(settings.location, Scrape).scrapes
    server.answers["/metrics/"] = answer
    found = one_round(settings)
    assert len(found.problems) == 1 and said in found.problems[0]
    assert ReadingMemory.load(settings.location, Scrape).scrapes == before


def test_a_refused_token_is_an_error(server: AdminServer, settings: Settings) -> None:
    server.answers["/metrics/"] = status(401, {"reason": "no"})
    with pytest.raises(UserError, match=r"reconcile.token: Pulsar refuses metrics/"):
        one_round(settings)


def test_metrics_without_topics_are_reported(server: AdminServer, settings: Settings) -> None:
    server.answers["/metrics/"] = status(200, 'pulsar_ml_cache_entries{cluster="east"} 3\n')
    (problem,) = one_round(settings).problems
    assert problem.endswith("exposeTopicLevelMetricsInPrometheus=true")


def test_a_damaged_memory_begins_anew(server: AdminServer, settings: Settings) -> None:
    count(server, 100)
    one_round(settings)
    (Path(settings.warehouse) / RECONCILE).write_text("{")
    assert len(one_round(settings).first) == 1


def test_one_process_compares_at_a_time(settings: Settings) -> None:
    again = only_reconciliation(settings.location)
    with (
        only_reconciliation(settings.location),
        pytest.raises(Busy, match="another process compares"),
        again,
    ):
        pass


def test_the_command(
    server: AdminServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "weir.yaml"
    config.write_text(
        f"warehouse: {tmp_path}/warehouse\n"
        f"reconcile: {{brokers: [{server.url}], settle_ms: 0, wait_ms: 0}}\n"
    )
    (tmp_path / "warehouse" / "_weir").mkdir(parents=True)
    words = ["reconcile", "--config", str(config)]
    count(server, 100)
    assert main(words) == 0
    assert capsys.readouterr().out == (
        "0 numbers: 0 agree, 0 differ, 0 cannot be compared; 1 read for the first time\n"
    )
    count(server, 130)
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["measure"], row["difference"], row["reason"]) for row in found["rows"]] == [
        ("messages_in", 30, "NOT_REACHED")
    ]


def test_the_command_needs_its_section(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reconcile", "--warehouse", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("weir: reconcile: is missing (the brokers")


def test_a_difference_is_exit_code_1(
    server: AdminServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weir has processed the span and has another number."""
    from app.show.reconcile.reconcile_command import reconcile_command
    from app.show.reconcile.spans import Counted, WeirValue

    def side(_tables: object) -> WeirValue:
        return WeirValue(
            {("messages_in", TOPIC): Counted(28)}, {}, reached=frozenset({"rate_limits"})
        )

    (Path(settings.warehouse) / "_weir").mkdir(parents=True)
    monkeypatch.setattr(brokers, "weir", side)
    count(server, 100)
    one_round(settings)
    count(server, 130)
    assert reconcile_command(settings) == 1


def test_topics_that_are_left_out_are_on_neither_side(
    server: AdminServer, hasty: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.show.reconcile.spans import Counted, WeirValue

    own = "persistent://acme/orders/__change_events"
    side = WeirValue({("messages_in", own): Counted(2)}, {}, reached=frozenset({"rate_limits"}))
    monkeypatch.setattr(brokers, "weir", lambda *_: side)
    for messages in (100, 100):
        count(server, messages)
        found = one_round(hasty)
    assert found.rows == []


@pytest.mark.parametrize(
    ("section", "mistake"),
    [
        ({}, "reconcile.brokers: is missing (allowed: host:port"),
        ({"brokers": []}, "reconcile.brokers: is missing (allowed: host:port"),
        ({"brokers": {"b1": "http://b1:8080"}}, "'b1' is not the name of a broker"),
        ({"brokers": ["b1:8080"]}, "is not the name of a broker"),
        ({"brokers": {"b1:8080": "b1:8080"}}, "'b1:8080' is not http://host:port"),
        (
            {"brokers": ["http://b1:1"], "sampled_by": "x"},
            "reconcile.sampled_by: 'x' is not supported (allowed: none, topic, connection)",
        ),
        ({"brokers": ["http://b1:1"], "include": ["a/b/c/d"]}, "'a/b/c/d' is not allowed"),
        ({"brokers": ["http://b1:1"], "token": "a", "token_file": "b"}, "excludes token_file"),
        ({"brokers": ["http://b1:1"], "intervall": 1}, "did you mean interval_ms?"),
    ],
)
def test_a_wrong_section_is_refused(
    make_settings: Callable[..., Settings], section: Json, mistake: str
) -> None:
    with pytest.raises(UserError) as found:
        make_settings(reconcile=section)
    assert mistake in str(found.value)


@pytest.mark.parametrize(
    ("keys", "topic", "takes"),
    [
        ({}, "persistent://acme/orders/created", True),
        ({}, "persistent://acme/orders/__change_events", False),
        ({}, "persistent://pulsar/host:1/healthcheck", False),
        ({"include": ["acme"]}, "persistent://acme/orders/created", True),
        ({"include": ["acme"]}, "persistent://acme2/orders/created", False),
        (
            {"include": ["acme/orders/created"]},
            "persistent://acme/orders/created-partition-3",
            True,
        ),
        ({"exclude": ["acme/orders"]}, "non-persistent://acme/orders/created", False),
        ({"include": ["acme"], "exclude": ["acme/orders/x"]}, "persistent://acme/orders/y", True),
    ],
)
def test_which_topics_the_feed_takes(
    make_settings: Callable[..., Settings], keys: Json, topic: str, takes: bool
) -> None:
    chosen = make_settings(reconcile={"brokers": ["http://b1:8080"], **keys}).reconcile
    assert chosen is not None and chosen.brokers == {"b1:8080": "http://b1:8080"}
    assert chosen.takes(topic) is takes


def test_secrets_are_masked(make_settings: Callable[..., Settings]) -> None:
    found = make_settings(reconcile={"brokers": ["http://b1:8080"], "token": "abcdef"})
    assert "abcdef" not in repr(found) and "abcdef" not in str(found.display())
