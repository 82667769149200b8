"""Names that mean harm, put into rows in place of harmless ones and taken out of answers again."""

from __future__ import annotations

import json
from typing import Any

from app.tables.definitions import TABLES

CONTROLS = (
    "\x00\t\n\r\x0b\x0c\x1b[2J\x1c\x1d\x1e\x1f\x7f\x85\x9b1m\u2028\u2029\u200b\u202e\u2066\ufeff"
)
MARKUP = "'\"`\\\\n$(id)`id`${env:PATH}{{7*7}}{% raw %}{}%s%n<script>alert(1)&lt;;--,|=1+1"
UNUSUAL = "💥e\u0301\u0300..null None<default>*?[a]@#:\ue000\U0010ffff"
ENDING = f"-{CONTROLS}{MARKUP}{UNUSUAL}."
"""What stands behind every name."""

HOSTILE_NAMES = [
    "a\nb",
    "a\r\nb",
    "\x1b[2J\x1b[31m",
    "\x9b1m",
    "\x00",
    "\u202egnp",
    "\u2028x\u2029",
    "\x7f\x08\x08",
    "<script>alert(1)</script>",
    "&lt;'\"`",
    "{{7*7}}{% raw %}",
    "'; DROP TABLE x; --",
    "$(id)`id`",
    "-x",
    "=1+1",
    "💥é",
    '"} 1\nevil{a="b',
    "\\n\\",
]
"""Names that clients may choose."""
NAMES = {
    *(
        "topic",
        "culprit_topic",
        "trigger_topic",
        "collateral_topics",
        "top_topic",
        "resource_group",
    ),
    *("cluster", "broker", "cnx_id", "producer_name", "subscription", "oldest_subscription"),
    *("consumer", "uuid", "group", "client_host", "transactional_id", "marker_ids", "entity"),
    *("user", "principal", "client_id", "client", "limiter_name"),
}
"""Columns of names that clients and operators of brokers choose."""
TEXTS = {
    *("problem", "remarks", "detail", "raw", "error", "exception", "observed", "summary", "author"),
    *("policy_json", "topic_bytes", "labels", "source_feed", "runbook"),
}
"""Columns of texts of others, which may hold names."""
WORDS = {
    *("job", "rule", "switches", "params_hash", "action", "throttle_type", "reason", "limiter"),
    *("transition", "receipt_state", "by_reason", "limited_by_limiter", "first_position"),
    *("last_position", "positions", "integrity", "marker_position", "position", "outcome", "acks"),
    *("tracked", "orphaned", "state", "stalled_at", "verdict", "bound_source", "age_state"),
    *("oldest_position", "timestamp_source", "limit_source_size", "limit_source_time"),
    *("retention_policy", "quota_type", "from_position", "to_position", "mark_delete", "kind"),
    *("first_hole", "set_back_from", "set_back_to", "group_type", "before", "policy", "cause"),
    *("reader_kind", "api", "bound_level", "basis", "file", "trace", "settings", "measure"),
    *(
        "compared_job",
        "event_type",
        "sub_type",
        "read_pos",
        "acked_ranges",
        "group_state",
    ),
    *("source_partition", "reason_code", "query", "policy_hash", "run_id", "table", "inputs"),
    *("expectation", "column", "alert", "severity"),
}
"""Columns of Weir's own words, of positions and of names in the configuration."""
NO_NAMES = {"", "<default>", "unknown", "*", "<none>"}


def unknown_columns() -> set[str]:
    """Columns of text of which it is not said whose text they have."""
    texts = {f.name for table in TABLES.values() for f in table.schema if "string" in str(f.type)}
    return texts ^ (NAMES | TEXTS | WORDS)


def dressed(value: Any) -> Any:
    """A name, or a list of names, with the ending; parts of partitioned topics keep their number."""
    if isinstance(value, list):
        return [dressed(each) for each in value]
    if not isinstance(value, str) or value in NO_NAMES:
        return value
    name, partition, number = value.partition("-partition-")
    return name + ENDING + partition + number


def dressed_rows(tables: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of tables with hostile names."""

    def new(column: str, value: Any) -> Any:
        if column == "policy_json" and value and value.startswith('{"'):
            about = json.loads(value)
            names = {k: dressed(v) for k, v in about.items() if k in ("name", "client_id")}
            return json.dumps({**about, **names})
        return dressed(value) if column in NAMES else value

    return {
        table: [{column: new(column, value) for column, value in row.items()} for row in rows]
        for table, rows in tables.items()
    }


def plain(value: Any) -> Any:
    """An answer with the names that were there before."""
    if isinstance(value, str):
        return value.replace(ENDING, "")
    if isinstance(value, list):
        return [plain(each) for each in value]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value
