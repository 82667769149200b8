"""The worked example of docs/semantics/rate_limits.md, judged by the core."""

from __future__ import annotations

import json

from tests.unit.state.trace import START_NS, play, publish

ORDERS, MAIL = "persistent://t/ns/orders", "persistent://t/ns/mail"
MS = 1_000_000
POLICY = json.dumps({"scope": "topic", "name": ORDERS, "limits": {"publishRateInMsgs": 100}})


def test_the_worked_example_is_what_the_core_decides():
    rows = play(
        [
            [
                # What makes `mail` a topic of the connection before the pause begins.
                publish(0, MAIL, producer=2, seq=0),
                publish(0, ORDERS, messages=250, seq=1),
                publish(200 * MS, ORDERS, seq=2),
                publish(300 * MS, MAIL, producer=2, messages=10, seq=3),
            ]
        ],
        policies=[POLICY],
        drain_ms=60_000,
    )
    shown = (
        "action",
        "rule",
        "transition",
        "reads_paused",
        "culprit_topic",
        "collateral_topics",
        "balance_msgs",
        "pause_model_ns",
        "waiting",
    )
    assert [
        (r["ts_mono_ns"] - START_NS, *(r[name] for name in shown)) for r in rows["throttle_events"]
    ] == [
        (
            0,
            "mark",
            "bucket_empty",
            "ConnectionStateChanged",
            True,
            ORDERS,
            [MAIL],
            -150,
            1510 * MS,
            1,
        ),
        (
            200 * MS,
            "mark",
            "bucket_empty",
            "TypeStateChanged",
            True,
            ORDERS,
            [MAIL],
            -131,
            1320 * MS,
            2,
        ),
        (1530 * MS + 3, "unmark", "released", "TypeStateChanged", True, ORDERS, [MAIL], 2, 0, 1),
        (1530 * MS + 3, "unmark", "released", "ConnectionStateChanged", False, ORDERS, [], 2, 0, 0),
    ]
    counts = ("limited_times", "culprit_times", "collateral_times", "culprit_ns", "collateral_ns")
    assert {
        r["topic"]: tuple(r[name] for name in counts) for r in rows["topic_throttle_stats"]
    } == {ORDERS: (1, 1, 0, 1530 * MS + 3, 0), MAIL: (1, 0, 1, 0, 1530 * MS + 3)}
