"""What is read of client quotas where requests are known, where brokers' metrics alone are, and where
both are: the same clients, limits and times, each once, by their requests first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli import main
from tests.support.client_quota_rows import MINUTE, decision, limit, measured, stats, usage
from tests.support.throttle_rows import write

Row = dict[str, Any]
Ask = Callable[..., Any]
MINUTES = range(12)
AT = ("--at", "2023-11-14T22:20:00Z", "--window", "1h")
MIB = 1 << 20
DEFAULTED = [f"d{n}" for n in range(6)]
OVER = ["d0", "d1", "d2", "d3", "d4", "d5", "etl"]
NO_LIMIT = {"client": "scan", "bound": None, "bound_level": "none", "utilisation": None}


def windows(kind: Callable[..., Row], minute: int) -> list[Row]:
    """What is known of a minute: user etl is over its limit, web near it, six users over a default,
    idle far from its limit. Client scan has none, whoever its user is."""

    def over(user: str, used: float, throttled: int, level: str = "user") -> Row:
        told = {"rate_max": 100 * used, "utilisation": used, "throttled": throttled}
        if kind is stats:
            told["throttle_ms"] = 900 * throttled
        return kind(minute, user, **told, bound_level=level)

    return [
        over("etl", 1.2, 3),
        over("web", 0.9, 0),
        over("idle", 0.001, 0),
        *(over(user, 1.1, 2, "default_user") for user in DEFAULTED),
        kind(minute, "", **NO_LIMIT, rate_max=3e6, rate_avg=2.0 * MIB),
        kind(minute, "", **NO_LIMIT, quota_type="request", rate_max=300.0, rate_avg=250.0),
    ]


def used(minute: int) -> list[Row]:
    """What the clients did in a minute."""
    little = {"bytes_": 3000, "handler_time_ms": 60.0}
    return [
        usage(minute, "etl", client_id="etl-1", **little),
        usage(minute, "web", client_id="web-1", **little),
        usage(minute, "ann", 120 * MIB, client_id="scan", handler_time_ms=2.5 * MINUTE),
    ]


def tables(basis: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {
        "events": [
            limit(0, "user", "etl", producer_byte_rate=100),
            limit(1, "user", "gone", producer_byte_rate=100),
        ],
        "client_quota_stats": [],
    }
    if basis != "metrics":
        found["client_quota_stats"] += [row for m in MINUTES for row in windows(stats, m)]
        found["client_usage"] = [row for m in MINUTES for row in used(m)]
        found["client_quota_decisions"] = [
            decision(
                row["window_start_ms"] - row["ts_wall_ms"] + m * MINUTE + MINUTE + n, row["user"]
            )
            | {"bound_level": row["bound_level"], "row_no": n}
            for m in MINUTES
            for row in windows(stats, m)
            for n in range(row["throttled"])
        ]
    if basis != "requests":
        found["client_quota_stats"] += [row for m in MINUTES for row in windows(measured, m)]
    return found


@pytest.fixture(scope="module", params=["requests", "metrics", "both"])
def basis(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def config(basis: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a warehouse in which this much is known."""
    folder = tmp_path_factory.mktemp(basis)
    for name, rows in tables(basis).items():
        write(str(folder / "warehouse"), name, rows)
    path = folder / "weir.yaml"
    given = {"warehouse": str(folder / "warehouse"), "queries": [["client_quotas"]]}
    path.write_text(yaml.safe_dump(given))
    return path


@pytest.fixture
def ask(config: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Asks a command; its answer as JSON."""

    def answer(*words: str) -> Any:
        capsys.readouterr()
        assert main([*words, "--config", str(config), "--json"]) in (0, 1)
        return json.loads(capsys.readouterr().out)

    return answer


def names(rows: list[Row], *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[column] for column in columns) for row in rows)


def test_questions_name_the_same_clients(ask: Ask, basis: str) -> None:
    told = {name: ask("query", name) for name in ASKED}
    times = (None, 12) if basis == "metrics" else (36, None if basis == "requests" else 12)
    (etl,) = [row for row in told["throttled-clients"] if row["user"] == "etl"]
    assert (etl["requests"], etl["measured_windows"]) == times
    assert names(told["throttled-clients"], "user") == [(user,) for user in OVER]
    near = [*((user, 1.1) for user in DEFAULTED), ("etl", 1.2), ("web", 0.9)]
    assert names(told["near-client-quota"], "user", "utilisation") == near
    principal = "" if basis == "metrics" else "User:ann"
    assert names(told["unlimited-clients"], "principal", "client_id", "bytes") == [
        (principal, "scan", 12 * 120 * MIB)
    ]
    assert names(told["idle-quotas"], "user", "utilisation") == [("gone", 0), ("idle", 0.001)]


ASKED = ("throttled-clients", "near-client-quota", "unlimited-clients", "idle-quotas")


def test_each_alert_fires_once_for_each_client(ask: Ask, basis: str) -> None:
    firing = ask("alerts", "check")["firing"]
    found = [(row["alert"], row["severity"], row["labels"].get("user")) for row in firing]
    assert found == [
        ("client-default-quota", "warning", None),
        ("client-near-quota", "warning", "web"),
        *(("client-throttled", "critical", user) for user in OVER),
        ("client-without-limit", "warning", None),
    ]
    alone = firing[-1]["summary"]
    who = "scan" if basis == "metrics" else "User:ann scan"
    assert alone.startswith(f"{who} on b1 (east) has no limit, and 100% of the bytes ")
    assert alone.endswith("; lately 2097152 bytes per s and 2.5 threads")


def test_metrics_count_each_window_once(ask: Ask, basis: str) -> None:
    found = {
        (each["name"].removeprefix("weir_client_"), *one["labels"].values()): one["value"]
        for each in ask("metrics", "--once")
        if each["name"].startswith("weir_client_")
        for one in each["samples"]
    }
    entity = ("east", "b1", "produce")
    used = {"etl": 1.2, "web": 0.9, **dict.fromkeys(DEFAULTED, 1.1)}
    throttled = {"etl": 36, "web": 0, **dict.fromkeys(DEFAULTED, 24)}
    seconds = 0.0 if basis == "metrics" else 0.9  # of a request
    who = ("scan",) if basis == "metrics" else ("User:ann", "scan")
    without = ("without_limit_ratio", "east", "b1", *who)
    assert found.pop(without) == pytest.approx(1, abs=1e-3)
    assert found == {
        ("default_quota_throttled", "east", "produce", "default_user"): 6,
        **{("quota_utilisation_ratio", *entity, user): used[user] for user in used},
        **{("requests_throttled_total", *entity, user): throttled[user] for user in used},
        **{
            ("throttle_seconds_total", *entity, user): pytest.approx(seconds * throttled[user])
            for user in used
        },
    }


def test_explain_tells_each_window_once(ask: Ask, basis: str) -> None:
    texts = [row["text"] for row in ask("explain", "client", "etl", *AT)["sentences"]]
    _, limit, throttled, *topics = texts
    assert limit.startswith("The produce quota of user etl is 100 bytes per s, set for the user")
    if basis == "metrics":
        assert throttled.startswith("The metrics of b1 show that it throttles, in 7 windows ")
    else:
        assert throttled.startswith("36 requests of user etl were over the produce quota ")
    (last,) = topics
    assert last.startswith("Which clients share" if basis == "metrics" else "Topics that user etl")
    never = [row["text"] for row in ask("explain", "client", "etl", "never", *AT)["sentences"]]
    unknown = (
        "No row has this client id; a request with it would be charged as follows. The produce"
    )
    assert [text for text in never if text.startswith(unknown)]
    alone = [row["text"] for row in ask("explain", "client", "ann", "scan", *AT)["sentences"]]
    assert [text for text in alone if text.startswith("No ")] == [
        f"No {kind} quota holds for client scan: no level has one. It is so since"
        " 2023-11-14T22:14:00Z at least, on b1."
        for kind in ("produce", "request")
    ]
    windows = ask("explain", "principal", "User:web", *AT)["sentences"]
    assert [row["at"] for row in windows] == [f"2023-11-14T22:{14 + m}:00Z" for m in MINUTES]


def test_a_report_names_the_throttled_and_who_has_no_limit(ask: Ask, basis: str) -> None:
    report = ask("report")
    scan = "Client scan" if basis == "metrics" else "Client scan of user ann"
    throttled, *_, others, alone = report["sections"]["what-happened"]["sentences"]
    assert others == "4 other limits were also exceeded."
    if basis != "metrics":  # else those that are throttled for as long come first by name
        assert throttled.startswith("User etl was throttled 36 times on broker b1 by its produce ")
    assert alone == (
        f"{scan}, which has no limit, took up to 2.5 request handler threads of b1, 100 % of what all"
        " clients took, from 22:14:00 to 22:26:00."
    )
    section = report["sections"]["client-quotas"]
    assert section["sentences"] == [
        "10 entities: 7 throttled, 8 at 80 % of a limit or more, 1 without a limit of a type that is"
        " measured."
    ]
    nearest = next(p for p in section["parts"] if p["title"] == "Nearest to their limits")["rows"]
    assert [(row["user"], row["throttled"]) for row in nearest] == [
        ("etl", 36),
        *((user, 24) for user in DEFAULTED),
        ("web", 0),
        ("idle", 0),
    ]


def test_forecasts_and_suggestions_have_each_window_once(ask: Ask, basis: str) -> None:
    windows = "SELECT entity, count(*) AS windows, count_if(breached) AS breached FROM quota_usage"
    found = ask("query", f"{windows} GROUP BY entity ORDER BY entity")
    assert [(row["entity"], row["windows"], row["breached"]) for row in found] == [
        *((user, 12, 12) for user in OVER),
        ("idle", 12, 0),
        ("web", 12, 0),
    ]
    words = "client-quotas", "--types", "produce,request", "--min-history", "5m"
    told = ask("policy", "suggest", *words)["suggestions"]
    assert {(row["windows"], row["basis"]) for row in told} == {
        (12, "metrics" if basis == "metrics" else "requests")
    }
    limits = [(row["user"], row["client"], row["quota_type"], row["limit"]) for row in told]
    assert limits == [
        ("", "scan", "produce", 3_000_000),
        ("etl", "", "produce", 120),
        *((user, "", "produce", 111) for user in DEFAULTED),
        # Below what is in force; what metrics show is needed at least.
        *(() if basis == "metrics" else (("web", "", "produce", 90), ("idle", "", "produce", 1))),
        ("", "scan", "request", 300),
    ]


def test_what_is_not_known_has_no_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes of a client whose request time alone is measured, or whose requests have no sizes; the limit of
    one that is throttled, where limits may not be read."""
    unread = {"bound": None, "bound_level": "none", "utilisation": None}
    time = {**NO_LIMIT, "client": "quiet", "quota_type": "request", "rate_avg": 250.0}
    rows = {
        "client_quota_stats": [
            row
            for m in MINUTES
            for row in (
                measured(m, "", **time),
                measured(m, "etl", **unread, throttled=1),
                measured(m, "web"),
            )
        ],
        "client_usage": [
            usage(m, "ann", client_id="unsized", handler_time_ms=5 * MINUTE) | {"bytes": None}
            for m in MINUTES
        ],
    }
    for name, each in rows.items():
        write(str(tmp_path), name, each)

    def answer(*words: str) -> Any:
        capsys.readouterr()
        assert main([*words, "--warehouse", str(tmp_path), "--json"]) in (0, 1)
        return json.loads(capsys.readouterr().out)

    assert names(answer("query", "unlimited-clients"), "client_id", "bytes") == [
        ("", 36_000),  # of user etl, whose limit may not be read
        ("quiet", None),
        ("unsized", None),
    ]
    told = {
        (row["alert"], row["summary"].split()[0]): row
        for row in answer("alerts", "check")["firing"]
    }
    assert "produce quota of unknown size (none)" in told["client-throttled", "etl"]["summary"]
    found = [t["summary"] for (name, _), t in told.items() if name == "client-without-limit"]
    assert sorted(text.partition("; lately ")[2] for text in found) == [
        "0 bytes per s and 2.5 threads",
        "5.0 threads",
    ]
