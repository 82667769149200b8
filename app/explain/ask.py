"""The question: an entity, a moment, and the time around it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from app.errors import UserError
from app.explain.reader import Reader, used
from state.engine.documents import full_topic_name

KINDS = ("topic", "connection", "principal", "message", "subscription", "group")
PARTITION = "-partition-[0-9]+$"

Tables = dict[str, str]
"""Condition on the rows of each table."""


def of_topic(column: str = "t.topic") -> str:
    """The condition that a topic is one of $names, or a partition of one."""
    return (
        f"(list_contains($names, {column}) OR (contains({column}, '-partition-') AND "
        f"list_contains($names, regexp_replace({column}, '{PARTITION}', ''))))"
    )


THROTTLED = (
    f"({of_topic()} OR {of_topic('coalesce(t.trigger_topic, t.culprit_topic)')}"
    f" OR len(list_filter(t.collateral_topics, lambda other: {of_topic('other')})) > 0)"
)
"""Rows of throttle_events that concern the topic, by publish, producer or connection."""
_SUBSCRIPTION = f"{of_topic()} AND t.subscription = $subscription"
_GROUP = 'list_contains($names, t."group")'
_CHUNKS = ("chunk_events", "chunk_messages", "incomplete_messages")

DECISIONS: dict[str, Tables] = {
    "topic": {
        "throttle_events": THROTTLED,
        **dict.fromkeys(
            ("producer_throttle", "backlog_evictions", "producer_refusals"), of_topic()
        ),
        "backlog_checks": f"{of_topic()} AND t.rule <> 'within_limits'",
        **dict.fromkeys(("group_lag", "group_states", "lost_messages"), of_topic()),
        "chunk_events": f"{of_topic()} AND t.outcome <> 'COMPLETE'",
    },
    "connection": dict.fromkeys(
        ("throttle_events", "producer_throttle"), "list_contains($names, t.cnx_id)"
    ),
    "principal": {"producer_id_decisions": "list_contains($names, t.user)"},
    "message": dict.fromkeys(_CHUNKS, "list_contains($names, t.uuid)"),
    "subscription": dict.fromkeys(
        ("backlog_subscriptions", "backlog_evictions", "chunk_events"), _SUBSCRIPTION
    ),
    "group": dict.fromkeys(("group_lag", "group_states", "lost_messages"), _GROUP),
}
"""Tables of single decisions about each kind of entity."""
LEVELS: dict[str, Tables] = {
    "topic": {
        **dict.fromkeys(
            (
                "topic_throttle_stats",
                "backlog_checks",
                "backlog_subscriptions",
                "chunk_events",
                "chunk_messages",
                "incomplete_messages",
                "chunk_topic_stats",
                "cache_stats",
            ),
            of_topic(),
        ),
        "limiter_stats": f"t.limiter = 'topic' AND {of_topic('t.limiter_name')}",
    },
    "connection": {
        "limiter_stats": "t.limiter = 'connection' AND list_contains($names, t.limiter_name)",
    },
    "principal": dict.fromkeys(
        ("producer_id_stats", "producer_id_owners"), "list_contains($names, t.user)"
    ),
    "message": {},
    "subscription": dict.fromkeys(
        ("chunk_messages", "chunk_state", "incomplete_messages", "cache_reads"), _SUBSCRIPTION
    ),
    "group": {},
}
"""Tables of windows and levels about it, and those of routine decisions."""
ARCHIVED: Tables = {
    "topic": of_topic(),
    "connection": "list_contains($names, t.cnx_id)",
    "principal": "list_contains($names, regexp_replace(t.principal, '^[^:]*:', ''))",
    "message": "list_contains($names, t.uuid)",
    "subscription": _SUBSCRIPTION,
    "group": "list_contains($names, t.subscription)",
}
"""The same entity in the archive."""


@dataclass(frozen=True)
class Ask:
    """One question; times are ms since the epoch, `hi_ms` is exclusive."""

    kind: str
    names: tuple[str, ...]
    """Every name that the rows of the entity may have."""
    at_ms: int = 0
    lo_ms: int = 0
    hi_ms: int = 0
    limit: int = 50
    subscription: str | None = None
    cluster: str | None = None
    broker: str | None = None

    @classmethod
    def about(cls, kind: str, name: str, **more: Any) -> Ask:
        """A question about an entity by the name on the command line."""
        if not name.strip():
            raise UserError(f"explain {kind}: the name is empty")
        names = [name]
        if kind in ("topic", "subscription"):
            names.append(full_topic_name(name))
        if kind == "principal":
            names = [name.partition(":")[2] or name]
        return cls(kind, tuple(dict.fromkeys(names)), **more)

    @property
    def name(self) -> str:
        """The entity as text."""
        name = self.names[-1]
        return name if self.subscription is None else f"{self.subscription} of {name}"

    @property
    def params(self) -> dict[str, Any]:
        """Values of the parameters that statements about it may name."""
        return {
            "names": list(self.names),
            "subscription": self.subscription,
            "lo": self.lo_ms,
            "hi": self.hi_ms,
            "at": self.at_ms,
            "cluster": self.cluster,
            "broker": self.broker,
            "rows": self.limit,
        }

    @property
    def place(self) -> str:
        """The condition on cluster and broker."""
        asked = [f"t.{name} = ${name}" for name in ("cluster", "broker") if getattr(self, name)]
        return " AND ".join(asked) or "true"

    @property
    def entity(self) -> Tables:
        """The condition on the rows of each table that are about the entity."""
        return {**DECISIONS[self.kind], **LEVELS[self.kind]}

    def where(self, table: str) -> str:
        """The condition that a row of a table is about the entity, at the place asked for."""
        return f"{self.entity[table]} AND {self.place}"

    def around(self, at_ms: int, window_ms: int) -> Ask:
        """The same question at a moment."""
        return replace(self, at_ms=at_ms, lo_ms=at_ms - window_ms, hi_ms=at_ms + window_ms + 1)


IN_WINDOW = "t.ts_wall_ms >= $lo AND t.ts_wall_ms < $hi"
"""The condition that a decision lies in the time asked for."""


def newest_ms(reader: Reader, ask: Ask) -> int | None:
    """When the newest decision about the entity was made, else its newest row; None without."""
    for tables in (DECISIONS[ask.kind], LEVELS[ask.kind]):
        newest = None
        for table, about in tables.items():
            least = newest
            if about == THROTTLED:
                # Lists are slow to search. A pause is in the statistics, too, if its window
                # has ended, at the time at which it began.
                paused = (
                    _newest(
                        reader,
                        ask,
                        "topic_throttle_stats",
                        f"{of_topic()} AND t.limited_times > 0",
                        "t.window_start_ms",
                    )
                    if newest is None
                    else None
                )
                least = newest if paused is None else paused - 1
            newest = _newest(reader, ask, table, about, "t.ts_wall_ms", least) or newest
        if newest is not None:
            return newest
    return None


def _newest(
    reader: Reader, ask: Ask, table: str, about: str, time: str, after: int | None = None
) -> int | None:
    """The latest time in rows of a table about the entity, of those after a time; None without."""
    if not reader.has(table):
        return None
    later = "true" if after is None else f"t.ts_wall_ms > {after}"
    found = reader.summary(
        table, f"max({time}) AS at_ms", f"{about} AND {ask.place} AND {later}", ask.params
    )["at_ms"]
    return None if found is None else int(found)


def nearest(reader: Reader, ask: Ask) -> list[dict[str, Any]]:
    """Per table with rows about the entity: their number, the first, the last, and those nearest
    to the requested time (ms since the epoch)."""
    found = []
    for table in ask.entity:
        if not reader.has(table):
            continue
        sql = f"""SELECT count(*) AS rows, min(ts_wall_ms) AS first_ms, max(ts_wall_ms) AS last_ms,
          max(ts_wall_ms) FILTER (WHERE ts_wall_ms < $lo) AS before_ms,
          min(ts_wall_ms) FILTER (WHERE ts_wall_ms >= $hi) AS after_ms
        FROM {table} AS t WHERE {ask.where(table)}"""
        (row,) = reader.dicts(sql, used(sql, ask.params))
        if row["rows"]:
            found.append({"table": table, **row})
    return found


def archived(reader: Reader, ask: Ask) -> dict[str, Any] | None:
    """The number of archive records that name the entity, their time range and connections; None
    without any."""
    if not reader.has("events"):
        return None
    sql = f"""SELECT count(*) AS rows, min(ts_wall_ms) AS first_ms, max(ts_wall_ms) AS last_ms,
      list_slice(list_sort(list(DISTINCT t.cnx_id)), 1, 3) AS connections
    FROM events AS t WHERE {ARCHIVED[ask.kind]} AND {ask.place}"""
    (row,) = reader.dicts(sql, used(sql, ask.params))
    return row if row["rows"] else None


def unknown(reader: Reader, ask: Ask) -> UserError | None:
    """The error that names the nearest known entities; None if no entity of the kind is known."""
    columns = {
        "topic": "topic",
        "connection": "cnx_id",
        "principal": "user",
        "message": "uuid",
        "subscription": "concat_ws(' ', topic, subscription)",
        "group": 't."group"',
    }
    wanted = ask.names[-1] + (f" {ask.subscription}" if ask.subscription else "")
    unions = " UNION ".join(
        f"SELECT DISTINCT {_name_column(table, columns[ask.kind])} AS name FROM {table} AS t"
        f" WHERE {ask.place} AND {_only(table, ask.kind)}"
        for table in ask.entity
        if reader.has(table)
    )
    if not unions:
        return None
    sql = f"""SELECT name, regexp_replace(lower(name), '^[a-z-]+://', '') AS known,
      contains(known, $wanted) AS within,
      levenshtein(known, $wanted) / greatest(length(known), length($wanted)) AS far
    FROM ({unions}) WHERE name IS NOT NULL ORDER BY within DESC, far, name LIMIT 3"""
    plain = re.sub("^[a-z-]+://", "", wanted.lower())
    found = reader.dicts(sql, used(sql, {**ask.params, "wanted": plain}))
    places = [f"{n} {v}" for n, v in (("cluster", ask.cluster), ("broker", ask.broker)) if v]
    where = f" ({', '.join(places)})" if places else ""
    if not found and not places:
        return None
    near = [row["name"] for row in found if row["within"] or row["far"] <= 0.34]
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"known are for example {', '.join(row['name'] for row in found)}"
        if found
        else "the tables have nothing of that place"
    )
    return UserError(f"explain {ask.kind}: no table knows {wanted}{where}\n{hint}")


def _name_column(table: str, column: str) -> str:
    if table == "limiter_stats":
        return "t.limiter_name"
    return column.replace("user", "t.user")


def _only(table: str, kind: str) -> str:
    """Rows of a table that name an entity of the kind."""
    return f"t.limiter = '{kind}'" if table == "limiter_stats" else "true"
