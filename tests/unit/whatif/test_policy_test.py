"""The command `policy test` and the module `app.testing`: traffic in words, and what is expected."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli import main
from app.errors import UserError
from app.testing import events, play
from tests.unit.state.trace import play as play_core

ROOT = Path(__file__).resolve().parents[3]
LIMIT = [{"scope": "topic", "name": "shop/orders/a", "limits": {"publishRateInMsgs": 100}}]
TOPIC = "persistent://shop/orders/a"
IN_ORDER = "FROM throttle_events ORDER BY ts_mono_ns, row_no"
Capture = pytest.CaptureFixture[str]


def written(folder: Path, **document: Any) -> str:
    path = folder / "cases.yaml"
    path.write_text(yaml.safe_dump({"policies": LIMIT, **document}, sort_keys=False))
    return str(path)


def case(expect: dict[str, Any], *lines: Any, name: str = "a case") -> dict[str, Any]:
    return {"name": name, "events": list(lines), "expect": expect}


def test_the_example_passes(capsys: Capture) -> None:
    assert main(["policy", "test", str(ROOT / "examples/tests/policies.yaml")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line[:5] for line in shown] == ["ok   "] * 4 + ["4 cas"]
    assert shown[-1] == "4 cases, 0 failed"


def test_the_page_shows_the_example() -> None:
    _, _, text = (ROOT / "examples/tests/policies.yaml").read_text("utf-8").partition("\n")
    assert f"```yaml\n{text}```" in (ROOT / "docs/policies.md").read_text("utf-8")


def test_a_case_that_fails_is_told_by_what_differs(tmp_path: Path, capsys: Capture) -> None:
    burst = "200 messages/s to shop/orders/a on c for 5s"
    beside = "1 messages/s to shop/orders/b on c for 5s"
    query = {"query": "blame", "rows": [{"topic": TOPIC, "broke_its_limit": 7}]}
    file = written(
        tmp_path,
        cases=[
            case({"culprits": [], "victims": ["shop/orders/b"]}, burst, beside),
            case({"culprits": [TOPIC], "queries": [query]}, burst, name="by its rows"),
            case({"queries": [{**query, "rows": []}]}, burst, name="by their number"),
            case({"culprits": ["shop/orders/a"]}, burst, name="as expected"),
        ],
    )
    assert main(["policy", "test", file]) == 1
    assert capsys.readouterr().out.splitlines()[:5] == [
        f"FAIL {file}: a case",
        "       culprits: expected none, got shop/orders/a",
        f"FAIL {file}: by its rows",
        "       queries[0], row 0: broke_its_limit: expected 7, got 1",
        f"FAIL {file}: by their number",
    ]
    assert main(["policy", "test", file, "--json"]) == 1
    outcomes = json.loads(capsys.readouterr().out)
    assert [each["ok"] for each in outcomes] == [False, False, False, True]
    assert outcomes[0]["differences"] == ["culprits: expected none, got shop/orders/a"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "cases: is not a list of cases"),
        ({"cases": []}, "cases: is not a list of cases"),
        ({"cases": ["x"]}, "cases[0]: is not a mapping (allowed: name, events, expect)"),
        (
            {"cases": [{"named": "x"}]},
            "cases[0].named: unknown key (allowed: name, events, expect)",
        ),
        ({"cases": [{"events": ["1 messages to t"]}]}, "cases[0].name: is missing"),
        ({"cases": [{"name": "x", "expect": {"culprits": []}}]}, "cases[0].events: is not a list"),
        ({"cases": [case({})]}, "cases[0].expect: is not a mapping (allowed: culprits, victims"),
        ({"cases": [case({"paused": []}, "1 messages to a/b/c")]}, "expect.paused: unknown key"),
        ({"cases": [case({"culprits": "a"}, "1 messages to a/b/c")]}, "is not a list of names"),
        (
            {"cases": [case({"victims": []}, "a message")]},
            "events[0]: 'a message' is not understood",
        ),
        ({"cases": [case({"victims": []}, 5)]}, "events[0]: 5 is not understood"),
        (
            {"cases": [case({"victims": []}, "at soon: 1 messages to a/b/c")]},
            "events[0]: at: 'soon'",
        ),
        (
            {"cases": [case({"victims": []}, "5 messages/s to a/b/c")]},
            "a rate needs `for` and a time",
        ),
        (
            {"cases": [case({"victims": []}, "5 messages to a/b/c for 1s")]},
            "`for` goes with a rate",
        ),
        ({"cases": [case({"victims": []}, "5 messages of big to a/b/c")]}, "of big: is not a size"),
        ({"cases": [case({"victims": []}, "9999999 messages to a/b/c")]}, "events are too many"),
        ({"cases": [case({"victims": []}, {"event_type": "published"})]}, "is no kind of event"),
        (
            {"cases": [case({"victims": []}, {"event_type": "publish", "topic": "t"})]},
            "event 1 is refused: MISSING_REQUIRED",
        ),
        (
            {"cases": [case({"queries": [{"query": "blame"}]}, "1 messages to a/b/c")]},
            "queries[0].rows: is not a list of rows",
        ),
        ({"policies": [{"scope": "topic"}], "cases": ["x"]}, "policies[0]"),
        ({"rate_limits": {"tokenbuckets": 1}, "cases": ["x"]}, "rate_limits.tokenbuckets"),
    ],
)
def test_a_mistake_is_told_by_its_key(
    document: dict[str, Any], said: str, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["policy", "test", written(tmp_path, **document)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and "Traceback" not in err, err


def test_words_are_events_in_order_of_time() -> None:
    found = events(
        "at 1s: 2 messages of 2kB to shop/orders/a on c1",
        "4 messages/s to shop/orders/b for 500ms",
        "at 2m: 1 new producer ids of alice",
        {"at": "3s", "event_type": "connection_closed", "cnx_id": "c1"},
    )
    times = [(e["event_type"], e["ts_mono_ns"] // 1_000_000 - 3_600_000) for e in found]
    assert times == [
        ("publish", 0),
        ("entry_added", 1),
        ("publish", 250),
        ("entry_added", 251),
        ("publish", 1000),
        ("publish", 1000),
        ("entry_added", 1001),
        ("entry_added", 1001),
        ("connection_closed", 3000),
        ("produce_batch", 120_000),
    ]
    assert [e["seq"] for e in found] == list(range(10))
    assert Counter(e.get("entry_bytes") for e in found if e["event_type"] == "publish") == {
        1000: 2,
        2000: 2,
    }
    assert {e["topic"] for e in found[:8]} == {TOPIC, "persistent://shop/orders/b"}
    assert found[-1]["principal"] == "User:alice"


def test_the_rows_are_those_of_the_core() -> None:
    """What is played in memory, and what the core answers to the same records."""
    records = events("200 messages/s to shop/orders/a on c1 for 3s")
    played = play(records, policies=LIMIT, queries=[["rate_limits"]])
    policy = json.dumps({**LIMIT[0], "name": TOPIC})
    expected = play_core([records], policies=[policy], drain_ms=60_000)
    columns = ("ts_mono_ns", "row_no", "action", "rule", "topic", "balance_msgs", "pause_model_ns")
    rows = [tuple(row[name] for name in columns) for row in played.query(IN_ORDER)]
    assert len(rows) > 1
    assert rows == [tuple(row[name] for name in columns) for row in expected["throttle_events"]]


def test_a_record_or_key_that_is_refused_is_named() -> None:
    with pytest.raises(UserError, match="event 1 is refused: BAD_TOPIC"):
        play(
            events("1 messages to persistent://a/b/c")
            and [{**events("1 messages to a/b/c")[0], "topic": "a"}]
        )
    with pytest.raises(UserError, match="polices: unknown key"):
        play(events("1 messages to a/b/c"), polices=[])


def test_jobs_can_be_chosen_and_parameters_set() -> None:
    ids = events("200 new producer ids of alice")
    bound = [{"scope": "user", "name": "alice", "limits": {"producer_ids_rate": 5}}]
    verdicts = []
    for enforcement in ("strict", "permissive"):
        played = play(
            ids,
            policies=bound,
            queries=[["producer_ids"]],
            producer_ids={"enforcement": enforcement},
        )
        assert played.query("users-over-bound", rows="1")[0]["user"] == "alice"
        verdicts.append({row["verdict"] for row in played.rows("producer_id_decisions")})
    assert verdicts == [{"counted", "rejected"}, {"counted", "throttled"}]


def test_requests_of_clients_are_judged_by_their_quotas(tmp_path: Path, capsys: Capture) -> None:
    """Without `queries` by the job that they are for; a case that names others has no such rows."""
    policies = [
        {"scope": "user", "name": "a", "client_id": "app", "limits": {"producer_byte_rate": 100}},
        {"scope": "client", "name": "web", "limits": {"consumer_byte_rate": 100}},
    ]
    lines = (
        "2 produce requests of 1kB by a with app",
        "at 1s: 2 produce requests of 9kB by a with other",
        "at 2s: 2 fetch requests of 1kB by b with web",
        "at 3s: 1 fetch requests/s of 100B by User:b for 9s",
    )
    cases = [
        case({"throttled": ["a/app", "web"]}, *lines),
        case({"throttled": ["web"]}, *lines[1:]),
        case({"throttled": []}, *lines[:2], name="fails"),
    ]
    assert main(["policy", "test", written(tmp_path, policies=policies, cases=cases)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert [line[:4] for line in out if "cases.yaml" in line] == ["ok  ", "ok  ", "FAIL"]
    assert "       throttled: expected none, got a/app" in out
    made = events(*lines)
    assert {e["charged_bytes"] for e in made if e["api"] == "FETCH"} == {1000, 100}
    assert {e["principal"] for e in made} == {"User:a", "User:b"}
    played = play(made, policies=policies, queries=[["producer_ids"]])
    assert played.rows("client_quota_decisions") == []
