"""What is told of pauses: of topics and connections, and of subscriptions that they held up."""

from __future__ import annotations

from app.jobs.rate_limits.explain import acknowledgements, commands, pause_sentences, windows
from app.jobs.rate_limits.explain.pauses import THROTTLED
from app.show.explain.ask import Bound, Explained, Subject, of_topic
from app.show.explain.windows import PLACE as WINDOWS

_KINDS = ("topic", "connection")

EXPLAINED = Explained(
    place=10,
    subjects=(
        Subject(10, _KINDS, pause_sentences.sentences),
        Subject(20, _KINDS, commands.sentences),
        Subject(WINDOWS, _KINDS, windows.sentences),
        Subject(40, ("topic", "subscription"), acknowledgements.sentences),
    ),
    decisions={
        "topic": {"throttle_events": THROTTLED, "producer_throttle": of_topic()},
        "connection": dict.fromkeys(
            ("throttle_events", "producer_throttle"), "list_contains($names, t.cnx_id)"
        ),
    },
    levels={
        "topic": {
            "topic_throttle_stats": of_topic(),
            "limiter_stats": f"t.limiter = 'topic' AND {of_topic('t.limiter_name')}",
        },
        "connection": {
            "limiter_stats": "t.limiter = 'connection' AND list_contains($names, t.limiter_name)",
        },
    },
    also_read=("publish_verdicts",),
    named_by={"limiter_stats": ("t.limiter_name", "t.limiter = '{kind}'")},
    bounds={
        # Lists are slow to search. A pause is in the statistics, too, if its window has ended, at
        # the time at which it began.
        ("topic", "throttle_events"): Bound(
            "topic_throttle_stats", f"{of_topic()} AND t.limited_times > 0", "t.window_start_ms"
        )
    },
)
