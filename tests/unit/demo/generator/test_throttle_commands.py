"""Throttle commands of PIP-385: clients that acknowledge them, and one whose sends time out."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from app.cli import main
from app.demo.generator.generated_configuration import document
from app.demo.generator.scenario import IncidentSpec, Scenario, load_scenario
from app.demo.generator.trace import Trace, plan_trace
from app.errors import UserError
from tests.support.throttle_rows import write
from tests.unit.demo.generator.model import (
    applied_records,
    connections_of,
    dry_times,
    normal_name,
    parsed_lines,
    topic_of,
)
from tests.unit.state import trace as core
from tests.unit.state.shipping import read_by

Records = list[dict[str, Any]]
EVENTS = 10_000
EXPECTED = {"commands": 6 + 6 + 5, "receipts": 6 + 6, "timed_out": 5 * 3, "throttled": 5}
"""Three topics share the connection whose client does not acknowledge."""


@pytest.fixture(scope="module")
def trace() -> Trace:
    return plan_trace(load_scenario("throttle-commands"), EVENTS, 1)


@pytest.fixture(scope="module")
def records(trace: Trace) -> Records:
    return applied_records(parsed_lines(trace.slices()))


@pytest.fixture(scope="module")
def rows(trace: Trace, records: Records) -> dict[str, Records]:
    """What the core makes of it, under the configuration that goes with the trace."""
    params = {**core.PARAMS, **document(trace, "w", {}, "p", None)["rate_limits"]}
    start_ms, end_s = trace.scenario.start_ms, trace.scenario.duration_s + 60
    policies = [json.dumps(p) for p in trace.policies]
    drain_ms = start_ms - core.START_MS + end_s * 1000
    named = [
        {**r, "topic": normal_name(r["topic"], r.get("partition"))} if "topic" in r else r
        for r in records
    ]
    return core.play([read_by("rate_limits", named)], params, policies, drain_ms)


def silent(trace: Trace) -> IncidentSpec:
    """The incident whose client does not acknowledge."""
    (found,) = (i for i in trace.scenario.incidents if not i.acknowledges)
    return found


def test_clients_write_receipts_and_timeouts(trace: Trace, records: Records) -> None:
    kinds = Counter(r["event_type"] for r in records)
    assert (kinds["throttle_receipt"], kinds["send_timeout"]) == (
        EXPECTED["receipts"],
        EXPECTED["timed_out"],
    )
    dry = dry_times(trace, records)
    assert {name: len(times) for (_, name), times in dry.items()} == {
        topic_of(trace, i): i.times for i in trace.scenario.incidents
    }


def test_every_receipt_answers_a_command_in_time(trace: Trace, rows: dict[str, Records]) -> None:
    marks = [r for r in rows["throttle_events"] if r["action"] == "mark"]
    assert len(marks) == EXPECTED["commands"]
    ends = Counter(
        (r["cnx_id"], r["rule"]) for r in rows["throttle_events"] if r["action"] == "receipt"
    )
    assert ends == {
        (
            *connections_of(trace, i),
            "receipt_in_time" if i.acknowledges else "receipt_timeout",
        ): i.times
        for i in trace.scenario.incidents
    }
    paused = {r["cnx_id"] for r in rows["throttle_events"] if r["reads_paused"]}
    assert paused == set(connections_of(trace, silent(trace)))


def test_the_culprits_send_is_throttled_and_those_of_others_time_out(
    trace: Trace, rows: dict[str, Records]
) -> None:
    lost = Counter(
        (r["topic"] == topic_of(trace, silent(trace)), r["exception"])
        for r in rows["producer_throttle"]
        if r["exception"]
    )
    assert lost == {
        (True, "ProducerThrottledException"): EXPECTED["throttled"],
        (False, "TimeoutException"): EXPECTED["timed_out"] - EXPECTED["throttled"],
    }


def test_question_and_alert_show_them(
    trace: Trace,
    rows: dict[str, Records],
    tmp_warehouse: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for table in ("throttle_events", "topic_throttle_stats", "limiter_stats", "producer_throttle"):
        write(tmp_warehouse, table, rows[table])
    assert main(["query", "throttle-commands", "--json", "--warehouse", tmp_warehouse]) == 0
    found = json.loads(capsys.readouterr().out)
    told = {r["topic"]: (r["commands"], r["timed_out_sends"]) for r in found if r["commands"]}
    assert told == {
        topic_of(trace, i): (i.times, 0 if i.acknowledges else EXPECTED["throttled"])
        for i in trace.scenario.incidents
    }
    main(["alerts", "check", "--json", "--warehouse", tmp_warehouse])
    answer = json.loads(capsys.readouterr().out)
    alert, topic = "producer-send-timeouts", topic_of(trace, silent(trace))
    assert [r["labels"]["topic"] for r in answer["firing"] if r["alert"] == alert] == [topic]


def test_a_client_that_does_not_know_the_command_is_refused() -> None:
    spec = load_scenario("throttle-commands").model_dump()
    spec["fleet"]["supports_throttle"] = 0
    with pytest.raises(UserError, match=r"topic 0 of broker 0 does not know the command"):
        plan_trace(Scenario.model_validate(spec), EVENTS, 1)
