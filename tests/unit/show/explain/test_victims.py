"""A backlog whose consumer was paused for the limit of another topic, and what is not guessed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.throttle_rows import COMMON, OTHER, START_MS, TOPIC, event, write
from tests.unit.show.explain.asking import texts

MINUTE = 60_000
Json = dict[str, Any]


def checked(minute: int, entries: int) -> Json:
    return {
        **COMMON,
        "job": "backlog",
        "rule": "within_limits",
        "topic": TOPIC,
        "subscription": "s",
        "ts_wall_ms": START_MS + minute * MINUTE,
        "pass_ms": START_MS + minute * MINUTE,
        "durable": True,
        "mark_delete": "1:1",
        "backlog_entries": entries,
        "backlog_bytes": 0,
    }


def acked(at_ms: int, **changes: Any) -> Json:
    return {
        "event_type": "ack",
        "cluster": "east",
        "broker": "b1",
        "ts_wall_ms": START_MS + at_ms,
        "topic": TOPIC,
        "subscription": "s",
        "consumer": "reader-1",
        "cnx_id": "c1",
        "source_partition": "p",
        "source_offset": at_ms,
        **changes,
    }


GROWING = [checked(0, 10), checked(1, 17)]
PAUSED = [event(10_000, "mark", culprit_topic=OTHER), event(22_000, "unmark", culprit_topic=OTHER)]
OWN = [event(10_000, "mark"), event(22_000, "unmark")]
SHARED = [
    event(10_000, "mark", limiter="broker", culprit_topic=OTHER),
    event(22_000, "unmark", limiter="broker", culprit_topic=OTHER),
]
BEFORE = [event(-30_000, "mark", culprit_topic=OTHER), event(-9_000, "unmark", culprit_topic=OTHER)]
SENTENCE = (
    "Its backlog has grown by 7 entries since the check at 22:14:00.000. In that time connection c1"
    f" of its consumer reader-1 was paused for 12 s, since {OTHER} used up its publish limit: its"
    " acknowledgements were not read."
)


def answer(
    warehouse: str,
    capsys: pytest.CaptureFixture[str],
    checks: list[Json],
    pauses: list[Json],
    events: list[Json],
) -> list[str]:
    """What is explained of the growth at the second check."""
    for name, rows in (
        ("backlog_subscriptions", checks),
        ("throttle_events", pauses),
        ("events", events),
    ):
        if rows:
            write(warehouse, name, rows)
    found = texts(capsys, warehouse, "subscription", TOPIC, "s", "--at", str(START_MS + MINUTE))
    return [text for _, _, text in found if "has grown" in text]


def test_a_consumer_that_was_paused_for_another_topic(
    tmp_warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(tmp_warehouse, capsys, GROWING, PAUSED, [acked(0)]) == [SENTENCE]


def test_a_pause_that_has_not_ended(tmp_warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(tmp_warehouse, capsys, GROWING, PAUSED[:1], [acked(0)]) == [
        SENTENCE.replace(" for 12 s", "")
    ]


@pytest.mark.parametrize(
    ("checks", "pauses", "events"),
    [
        (GROWING, PAUSED, []),  # nobody knows where it is
        (GROWING, PAUSED, [acked(0, cnx_id=None)]),
        (GROWING, PAUSED, [acked(0, cnx_id="c2")]),  # it is elsewhere
        (GROWING, PAUSED, [acked(0, broker="b2")]),
        (GROWING, PAUSED, [acked(0, subscription="other")]),
        (GROWING, PAUSED, [acked(0, topic=OTHER)]),
        (GROWING, PAUSED, [acked(-2 * 3_600_000)]),  # long ago
        (GROWING, PAUSED, [acked(0), acked(15_000, cnx_id="c2")]),  # it has moved
        (GROWING, PAUSED, [acked(0), acked(5_000, event_type="consumer_closed", cnx_id=None)]),
        (GROWING, OWN, [acked(0)]),  # for its own limit
        (GROWING, SHARED, [acked(0)]),  # for a limit of all
        (GROWING, BEFORE, [acked(0)]),  # before it grew
        (GROWING, [], [acked(0)]),
        ([checked(0, 17), checked(1, 17)], PAUSED, [acked(0)]),  # it has not grown
        ([checked(1, 17)], PAUSED, [acked(0)]),
    ],
)
def test_what_the_rows_do_not_show_is_not_guessed(
    checks: list[Json],
    pauses: list[Json],
    events: list[Json],
    tmp_warehouse: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert answer(tmp_warehouse, capsys, checks, pauses, events) == []
