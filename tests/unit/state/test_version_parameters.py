"""Every value of every version parameter gives other rows than the default, where it should."""

from __future__ import annotations

from typing import Any

import pytest

from state.jobs import DECLARED
from tests.unit.state.trace import play, publish, record
from tests.unit.state.traces import document

MS = 1_000_000
A, B = "persistent://t/ns/a", "persistent://t/ns/b"
ASKED = {"protocol": "pip385", "receipt_model": "supported"}


def opened(supports: bool = True) -> dict[str, Any]:
    return record("connection_opened", 0, seq=0, cnx_id="c1", supports_throttle=supports)


def limit(msgs: int, name: str = "t/ns/a") -> str:
    return document("topic", name, publishRateInMsgs=msgs)


BROKER = document("broker", "*", brokerPublisherThrottlingMaxMessageRate=2)
SINGLES = [publish(0, seq=i) for i in range(1, 12)]
"""Eleven messages at one instant: a bucket that is refreshed once per tick lets more pass."""
TIMEOUT = record(
    "send_timeout", 1_500 * MS, seq=40, cnx_id="c1", topic=A, producer_id=1, sequence_id=7
)
LONG = [publish(0, seq=1, messages=30), publish(900 * MS, seq=2, messages=1)]
REMOVED = record("policy", 500 * MS, seq=20, policy_json=limit(0))
IDLE = 10_000 * MS
CASES = {
    ("tokenbucket", "wrapping"): (
        {},
        [limit(10**9)],
        [publish(0, seq=1), publish(IDLE, seq=2, messages=10**9 - 1), publish(IDLE + 1, seq=3)],
    ),
    ("tokenbucket", "per_tick"): ({}, [limit(10)], SINGLES),
    ("release_condition", "positive"): (
        {},
        [limit(1000)],
        [publish(0, seq=1, messages=1100), publish(50 * MS, seq=2, messages=5)],
    ),
    ("throttle_tracker", "shared_counter"): (
        {},
        [BROKER],
        [publish(0, seq=1, messages=5), publish(0, topic=B, producer=2, seq=2, messages=5)],
    ),
    ("limit_change", "scheduled"): ({}, [limit(2)], [*LONG[:1], REMOVED]),
    ("protocol", "pip385"): ({}, [limit(2)], LONG),
    ("receipt_model", "supported"): ({"protocol": "pip385"}, [limit(2)], LONG),
    ("receipt_model", "observed"): ({"protocol": "pip385"}, [limit(2)], LONG),
    ("receipt_model", "all"): ({"protocol": "pip385"}, [limit(2)], LONG),
    ("broker_reason", "wait"): (ASKED, [BROKER], [publish(0, seq=1, messages=9)]),
    ("pause_rule", "model"): (ASKED, [limit(2)], LONG),
    ("repeat_throttle", "max"): (
        ASKED,
        [limit(2), document("broker", "*", maxPendingPublishRequestsPerConnection=2)],
        [
            LONG[0],
            publish(900 * MS, topic=B, producer=2, seq=2),
            record(
                "send_timeout", 950 * MS, seq=40, cnx_id="c1", topic=A, producer_id=1, sequence_id=7
            ),
        ],
    ),
    ("timeout_rule", "seen"): (ASKED, [limit(2)], [*LONG[:1], TIMEOUT]),
    ("observed_pauses", "ignore"): (
        {},
        [limit(2)],
        [
            LONG[0],
            record("reads_paused", 5 * MS, seq=30, cnx_id="c1"),
            record("reads_resumed", 700 * MS, seq=31, cnx_id="c1"),
            LONG[1],
        ],
    ),
}


@pytest.mark.parametrize(("name", "value"), CASES, ids=lambda x: str(x))
def test_value_differs_from_the_default(name: str, value: str) -> None:
    params, policies, records = CASES[name, value]
    trace = [opened(), *sorted(records, key=lambda r: (r["ts_mono_ns"], r["seq"]))]
    usual = play([trace], params, policies, drain_ms=600_000)
    other = play([trace], {**params, name: value}, policies, drain_ms=600_000)
    assert usual["throttle_events"]
    assert other != usual


def test_the_receipt_models_differ_from_each_other() -> None:
    """On a client that announced the command and one that did not."""
    seen = {}
    for model in ("none", "supported", "observed", "all"):
        params = {"protocol": "pip385", "receipt_model": model}
        seen[model] = [
            play([[opened(supports), *LONG]], params, [limit(2)], drain_ms=600_000)
            for supports in (True, False)
        ]
    models = list(seen)
    assert all(seen[a] != seen[b] for i, a in enumerate(models) for b in models[i + 1 :])


def test_every_value_is_here() -> None:
    from typing import get_args

    for name in DECLARED["rate_limits"].switches:
        field = DECLARED["rate_limits"].parameters.model_fields[name]
        values = set(get_args(field.annotation)) - {field.default}
        assert {value for known, value in CASES if known == name} == values
