"""What is told of backlogs of subscriptions and of Kafka groups."""

from __future__ import annotations

from app.jobs.backlog.explain import groups, subscriptions
from app.show.explain.ask import Explained, Subject, of_subscription, of_topic

_GROUP_TABLES = ("group_lag", "group_states", "lost_messages")

EXPLAINED = Explained(
    place=20,
    subjects=(
        Subject(40, ("topic", "subscription"), subscriptions.sentences),
        Subject(50, ("topic", "group"), groups.sentences),
    ),
    decisions={
        "topic": {
            **dict.fromkeys(("backlog_evictions", "producer_refusals"), of_topic()),
            "backlog_checks": f"{of_topic()} AND t.rule <> 'within_limits'",
            **dict.fromkeys(_GROUP_TABLES, of_topic()),
        },
        "subscription": dict.fromkeys(
            ("backlog_subscriptions", "backlog_evictions"), of_subscription()
        ),
        "group": dict.fromkeys(_GROUP_TABLES, 'list_contains($names, t."group")'),
    },
    levels={
        "topic": dict.fromkeys(("backlog_checks", "backlog_subscriptions"), of_topic()),
    },
    also_read=("backlog_checks",),
)
