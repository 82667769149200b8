"""The command `policy suggest client-quotas`, held against the job itself."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli import main
from app.config.settings import Settings
from app.jobs.client_quotas.whatif.client_history import LIMITS
from state.events import QUOTA_TYPES
from tests.support.client_quota_rows import decision, stats, usage
from tests.support.effort import examples
from tests.support.throttle_rows import COMMON, START_MS, write
from tests.unit.state.client_quota_trace import PARAMS, T0, numbered, play, quota, request

Capture = pytest.CaptureFixture[str]
Make = Callable[..., Settings]
Row = dict[str, Any]
LITTLE = ("--min-history", "0s")
ALL = ("--types", ",".join(QUOTA_TYPES))
HIGH = 1e15
"""A limit that binds nobody, so that every type is measured."""
FIRST = ("user", "client", "quota_type", "limit", "certainty")


def warehouse(make: Make, **tables: Sequence[Row]) -> Settings:
    settings = make(queries=[["client_quotas"]])
    for name, rows in tables.items():
        write(settings.warehouse, name, list(rows))
    return settings


def suggested(capsys: Capture, settings: Settings, *words: str, code: int = 0) -> Any:
    config = Path(settings.warehouse).with_suffix(".yaml")
    config.write_text(
        yaml.safe_dump({"warehouse": settings.warehouse, "queries": [["client_quotas"]]})
    )
    command = ["policy", "suggest", "client-quotas", "--config", str(config)]
    assert main([*command, *words]) == code
    out, err = capsys.readouterr()
    return json.loads(out) if "--json" in words and not code else out + err


def limits(found: Any, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[c] for c in columns or FIRST) for row in found["suggestions"]]


# -- what the tables tell --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "needed"),
    # of ten windows on two brokers one at 0.1, one at 0.2 may be above the limit
    [("0", 100), ("0.09", 100), ("0.1", 90), ("0.2", 80), ("1", 10)],
)
def test_the_smallest_limit_keeps_the_share_of_the_windows_of_all_brokers(
    share: str, needed: float, make_settings: Make, capsys: Capture
) -> None:
    rows = [stats(n // 2, used=(n + 1) / 10, broker=f"b{n % 2}") for n in range(10)]
    settings = warehouse(make_settings, client_quota_stats=rows)
    found = suggested(capsys, settings, "--json", *LITTLE, "--share", share)
    assert limits(found) == [("etl", "", "produce", needed, "exact")]
    (row,) = found["suggestions"]
    assert (row["windows"], row["in_force"], row["bound_level"]) == (10, 100.0, "user")
    assert row["change"] == ("same" if needed == 100 else "cut")


def test_headroom_is_added_and_limits_are_what_kafka_takes(
    make_settings: Make, capsys: Capture
) -> None:
    """Bytes are whole, the other limits have thousandths; all are rounded up."""
    rows = [
        stats(0, rate_max=10.01),
        stats(0, quota_type="request", rate_max=0.1),
        stats(0, "b", quota_type="request", rate_max=0.1001),
    ]
    settings = warehouse(make_settings, client_quota_stats=rows)
    words = ("--json", *LITTLE, *ALL)
    columns = ("user", "limit")
    assert limits(suggested(capsys, settings, *words), *columns) == [
        ("etl", 11),
        ("b", 0.101),
        ("etl", 0.1),
    ]
    assert limits(suggested(capsys, settings, *words, "--headroom", "0.5"), *columns) == [
        ("etl", 17),
        ("b", 0.152),
        ("etl", 0.15),
    ]


def test_a_document_has_what_any_cluster_needs(
    make_settings: Make, capsys: Capture, tmp_path: Path
) -> None:
    rows = [
        stats(0, used=0.5),
        stats(0, used=2.0, cluster="west", bound=None, bound_level="none"),
        stats(0, used=0.7, quota_type="fetch"),
        stats(0, "a*", used=0.1, client="app"),
        stats(0, "", used=0.3, client="app"),
    ]
    settings = warehouse(make_settings, client_quota_stats=rows)
    out = tmp_path / "limits.yaml"
    found = suggested(capsys, settings, "--json", *LITTLE, "--out", str(out))
    assert limits(found, "cluster", "user", "quota_type", "needed", "limit", "change") == [
        ("east", "etl", "produce", 50.0, 200, "raise"),
        ("west", "etl", "produce", 200.0, 200, "new"),
        ("east", "", "produce", 30.0, 30, "cut"),
        ("east", "a*", "produce", 10.0, 10, "cut"),
        ("east", "etl", "fetch", 70.0, 70, "cut"),
    ]
    assert yaml.safe_load(out.read_text()) == [
        {"scope": "client", "name": "app", "limits": {"producer_byte_rate": 30}},
        {
            "scope": "user",
            "name": "a[*]",
            "client_id": "app",
            "limits": {"producer_byte_rate": 10},
        },
        {
            "scope": "user",
            "name": "etl",
            "limits": {"producer_byte_rate": 200, "consumer_byte_rate": 70},
        },
    ]
    assert main(["policy", "check", str(out)]) == 0
    assert main(["policy", "export", str(out), "--format", "kafka-configs"]) == 0


def test_what_makes_a_limit_a_bound_is_said(make_settings: Make, capsys: Capture) -> None:
    back = decision(0, "r", api="FETCH", quota_type="request", client_id="x")
    rows = [
        stats(0, "exact"),
        stats(0, "seen", 1.2, basis="metrics"),
        stats(0, "both", 0.3, basis="metrics"),
        stats(0, "both", 0.2),
        stats(0, "waited", 1.2, throttled=1),
        stats(0, "r", 1.2, quota_type="fetch"),
        stats(0, "m", quota_type="controller_mutation"),
        stats(0, "tokens", None, quota_type="controller_mutation", basis="metrics"),
        stats(0, ""),
        stats(0, "idle", 0.0),
    ]
    settings = warehouse(make_settings, client_quota_stats=rows, client_quota_decisions=[back])
    found = suggested(capsys, settings, "--json", *LITTLE, *ALL)
    assert {row["user"]: (row["certainty"], row["basis"]) for row in found["suggestions"]} == {
        "exact": ("exact", "requests"),
        "seen": ("at least", "metrics"),
        "both": ("exact", "requests"),
        "waited": ("at least", "requests"),
        "r": ("at least", "requests"),
        "m": ("enough", "requests"),
    }
    assert found["left_out"] == {
        "brokers show tokens only, which say nothing of another limit": 1,
        "requests without a client id have no limit of their own": 1,
        "nothing was used": 1,
    }
    text = suggested(capsys, settings, *LITTLE, *ALL)
    assert "at least, by metrics: a burst between two measurements" in text
    assert "at least, by requests: the client was throttled meanwhile" in text
    assert "enough: a bucket of mutations holds eleven seconds" in text
    assert "1 limit left out: brokers show tokens only" in text


@pytest.mark.parametrize(
    ("per", "entities"),
    [
        ("user", [("web", "", 2000), ("etl", "", 1000)]),
        ("client", [("", "app", 3000)]),
        ("user-client", [("web", "app", 2000), ("etl", "app", 1000)]),
    ],
)
def test_where_no_quota_was_set_the_use_of_clients_is_a_bound(
    per: str, entities: list[tuple[str, str, int]], make_settings: Make, capsys: Capture
) -> None:
    """60 kB in a minute are 1,000 bytes a second in the mean."""
    rows = [
        usage(0, bytes_=40_000),
        usage(0, bytes_=20_000, topic="audit"),
        usage(0, "web", 120_000),
        usage(0, principal=None, client_id="<others>", topic=None, api=None),
        usage(0, api="METADATA", topic=None, bytes_=0),
    ]
    fetched = stats(0, quota_type="fetch")
    settings = warehouse(make_settings, client_usage=rows, client_quota_stats=[fetched])
    found = suggested(capsys, settings, "--json", *LITTLE, "--per", per)
    assert limits(found) == [
        *((user, client, "produce", limit, "at least") for user, client, limit in entities),
        ("etl", "", "fetch", 50, "exact"),
    ]


def test_request_time_of_use_is_a_share_of_a_thread(make_settings: Make, capsys: Capture) -> None:
    rows = [usage(0, handler_time_ms=600.0), usage(0, api="FETCH", handler_time_ms=1200.0)]
    settings = warehouse(make_settings, client_usage=rows)
    found = suggested(capsys, settings, "--json", *LITTLE, "--types", "request")
    assert limits(found) == [("etl", "", "request", 3.0, "at least")]


def test_a_span_and_a_short_history_leave_rows_out(make_settings: Make, capsys: Capture) -> None:
    rows = [stats(n, used=(n + 1) / 10) for n in range(6)] + [stats(0, "short", 0.9)]
    settings = warehouse(make_settings, client_quota_stats=rows)
    found = suggested(capsys, settings, "--json", "--share", "0", "--min-history", "5m")
    assert limits(found, "user", "limit") == [("etl", 60)]
    reason = "less than 5 min from the first window to the last (--min-history)"
    assert found["left_out"] == {reason: 1}
    found = suggested(capsys, settings, "--json")
    assert (limits(found), list(found["left_out"].values())) == ([], [2])
    span = ("--from", str(START_MS + 60_000), "--to", str(START_MS + 180_000))
    found = suggested(capsys, settings, "--json", *LITTLE, *span, "--share", "0")
    assert limits(found, "user", "limit") == [("etl", 30)]


@pytest.mark.parametrize(
    ("used", "changes", "kept"),
    [
        (0.5, {"basis": "metrics"}, []),  # a cut to a lower bound
        (0.5, {"throttled": 1}, []),
        (0.5, {}, ["cut"]),  # exact
        (2.0, {"basis": "metrics"}, ["raise"]),
        (0.5, {"basis": "metrics", "bound": None, "bound_level": "none"}, ["new"]),
    ],
)
def test_no_limit_is_cut_to_what_is_needed_at_least(
    used: float,
    changes: Row,
    kept: list[str],
    make_settings: Make,
    capsys: Capture,
    tmp_path: Path,
) -> None:
    rows = [stats(minute, used=used, **changes) for minute in range(12)]
    settings = warehouse(make_settings, client_quota_stats=rows)
    out = tmp_path / "suggested.yaml"
    found = suggested(capsys, settings, "--json", *LITTLE, "--out", str(out))
    assert [row["change"] for row in found["suggestions"]] == kept
    assert sum(found["left_out"].values()) == 1 - len(kept)
    assert out.exists() == bool(kept)
    text = suggested(capsys, settings, *LITTLE)
    history = "History found: 12 min of each client"
    assert text.startswith(history) == bool(kept)
    assert not kept or f"# {history}\n" in out.read_text("utf-8")


def test_the_table_has_units_and_names_the_level(make_settings: Make, capsys: Capture) -> None:
    rows = [
        stats(0, used=20_000.0, bound=1e6, bound_level="default_user"),
        stats(0, used=0.5, quota_type="request"),
    ]
    settings = warehouse(make_settings, client_quota_stats=rows)
    text = suggested(capsys, settings, *LITTLE, *ALL)
    cells = [line.split() for line in text.splitlines()]
    assert [
        "etl",
        "produce",
        "2.0",
        "MB/s",
        "1.0",
        "MB/s",
        "default_user",
        "raise",
        "exact",
    ] in cells
    assert ["etl", "request", "50", "%", "100", "%", "user", "cut", "exact"] in cells


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--per", "topic"), "--per topic: has no quota\nallowed: user, client, user-client"),
        (("--types", "produce,ip"), "--types ip: is no quota type\nallowed: produce, fetch,"),
        (("--types", "fetch"), "the tables have no use of fetch to go by"),
        (("--from", "2", "--to", "1"), "--from is not before --to"),
    ],
)
def test_mistakes_are_named(
    words: Sequence[str], said: str, make_settings: Make, capsys: Capture
) -> None:
    settings = warehouse(make_settings, client_quota_stats=[stats(0)])
    assert said in suggested(capsys, settings, *words, code=2)


# -- what the job decides under the limits ---------------------------------------------------


def drawn(rng: random.Random) -> list[Row]:
    """Requests of three users in five minutes, with bursts and silences, on two brokers."""
    made, at = [], 0
    while at < 300_000:
        at += rng.choice((0, 1, 40, 300, 900, 2500, 12_000))
        for _ in range(rng.choice((1, 1, 3, 10))):
            what: Row = {"api": "PRODUCE", "charged_bytes": rng.choice((1, 50, 333, 4000))}
            kind = rng.random()
            if kind < 0.3:
                what["api"] = "FETCH"
            elif kind < 0.5:
                what = {"api": "CREATE_TOPICS", "mutations": rng.choice((1, 2, 40))}
            broker, client = rng.choice(("b1", "b2")), rng.choice(("app", "web"))
            handler_ns = rng.choice((100_000, 7_000_000, 90_000_000))
            made.append(
                request(
                    at,
                    user=rng.choice("abc"),
                    broker=broker,
                    **what,
                    client_id=client,
                    handler_time_ns=handler_ns,
                )
            )
    return made


def judged(made: Sequence[Row], documents: Sequence[Row]) -> list[Row]:
    """The windows of the requests under some policies, all types measured per user."""
    high = quota("<default>", **dict.fromkeys(LIMITS.values(), HIGH))
    texts = (high, *(json.dumps(document) for document in documents))
    rows = play([numbered(made)], {**PARAMS, "stats_window_ms": 10_000}, texts, T0 + 400_000)
    return rows["client_quota_stats"]


def throttled(rows: Sequence[Row]) -> Counter[tuple[str, str]]:
    """Windows with a throttled request, by user and type."""
    return Counter((r["user"], r["quota_type"]) for r in rows if r["throttled"])


@pytest.mark.parametrize("seed", range(examples(60)))
def test_the_job_keeps_the_share_and_exceeds_it_under_less(
    seed: int, make_settings: Make, capsys: Capture, tmp_path: Path
) -> None:
    """Under the limits together no entity has more throttled windows than its share; and under one that is
    a thousandth smaller it has, where the limit is exact. By less a throttle time can round to 0 ms."""
    rng = random.Random(seed)
    made, share = drawn(rng), rng.choice((0.0, 0.05, 0.3))
    rows = [{**COMMON, **row, "job": "client_quotas"} for row in judged(made, ())]
    settings = warehouse(make_settings, client_quota_stats=rows)
    out = tmp_path / "limits.yaml"
    words = ("--json", *LITTLE, *ALL, "--share", str(share), "--out", str(out))
    found = suggested(capsys, settings, *words)["suggestions"]
    assert {row["quota_type"] for row in found} == set(QUOTA_TYPES)
    beyond = throttled(judged(made, yaml.safe_load(out.read_text())))
    for row in found:
        tolerated = 0 if row["certainty"] == "enough" else math.floor(share * row["windows"])
        assert beyond[row["user"], row["quota_type"]] <= tolerated, row
    row = rng.choice([r for r in found if r["certainty"] == "exact"])
    smaller = {LIMITS[row["quota_type"]]: row["needed"] * 0.999}
    alone = [{"scope": "user", "name": row["user"], "limits": smaller}]
    more = throttled(judged(made, alone))[row["user"], row["quota_type"]]
    if row["quota_type"] != "fetch" or not share:
        assert more > math.floor(share * row["windows"]), row
