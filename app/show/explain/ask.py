"""The question: an entity, a moment, and the time around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from app.errors import UserError
from app.jobs import parts
from app.show.explain.nearby_rows import SnapshotReader, used
from app.show.explain.sentence import Row, Sentence
from state.engine.documents import full_topic_name

PARTITION = "-partition-[0-9]+$"

Tables = dict[str, str]
"""Condition on the rows of each table."""


def of_topic(column: str = "t.topic") -> str:
    """The condition that a topic is one of $names, or a partition of one."""
    return (
        f"(list_contains($names, {column}) OR (contains({column}, '-partition-') AND "
        f"list_contains($names, regexp_replace({column}, '{PARTITION}', ''))))"
    )


def of_subscription() -> str:
    """The condition that a row is about the subscription."""
    return f"{of_topic()} AND t.subscription = $subscription"


USER = "regexp_replace(t.principal, '^[^:]*:', '')"
"""The user of a principal."""
OF_USER = f"list_contains($names, {USER})"
"""The condition that a principal is one of $names."""
ARCHIVED: Tables = {
    "topic": of_topic(),
    "connection": "list_contains($names, t.cnx_id)",
    "principal": OF_USER,
    "message": "list_contains($names, t.uuid)",
    "subscription": of_subscription(),
    "group": "list_contains($names, t.subscription)",
    "client": f"{OF_USER} AND ($client_id IS NULL OR t.client_id = $client_id)",
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
    client_id: str | None = None
    """Of a user of Kafka; None for all its clients."""
    cluster: str | None = None
    broker: str | None = None

    @classmethod
    def about(cls, kind: str, name: str, second: str | None = None, **more: Any) -> Ask:
        """A question about an entity by the names on the command line."""
        if kind not in kinds():
            raise UserError(f"explain {kind}: unknown kind\nallowed: {', '.join(kinds())}")
        if not name.strip():
            raise UserError(f"explain {kind}: the name is empty")
        if kind != "client" and (kind == "subscription") != (second is not None):
            needs = "its topic and its name" if kind == "subscription" else "one name"
            raise UserError(f"explain {kind}: {needs} expected")
        names = [name]
        if kind in ("topic", "subscription"):
            names.append(full_topic_name(name))
        if kind in ("principal", "client"):
            names = [name.partition(":")[2] or name]
        if second is not None:
            more["client_id" if kind == "client" else "subscription"] = second
        return cls(kind, tuple(dict.fromkeys(names)), **more)

    @property
    def name(self) -> str:
        """The entity as text."""
        name, second = self.names[-1], self.subscription or self.client_id
        return name if second is None else f"{second} of {name}"

    @property
    def params(self) -> dict[str, Any]:
        """Values of the parameters that statements about it may name."""
        return {
            "names": list(self.names),
            "subscription": self.subscription,
            "client_id": self.client_id,
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

    @cached_property
    def decisions(self) -> Tables:
        """The condition on the rows of each table of single decisions about the entity."""
        return {
            table: where
            for job in explained()
            for table, where in job.decisions.get(self.kind, {}).items()
        }

    @cached_property
    def levels(self) -> Tables:
        """The condition on the rows of each table of windows and levels about it, and on those of
        routine decisions; last of tables that name it in a column of their own."""
        levels = [
            (table in job.named_by, table, where)
            for job in explained()
            for table, where in job.levels.get(self.kind, {}).items()
        ]
        return {table: where for _, table, where in sorted(levels, key=itemgetter(0))}

    @property
    def entity(self) -> Tables:
        """The condition on the rows of each table that are about the entity."""
        return {**self.decisions, **self.levels}

    def where(self, table: str) -> str:
        """The condition that a row of a table is about the entity, at the place asked for."""
        return f"{self.entity[table]} AND {self.place}"

    def around(self, at_ms: int, window_ms: int) -> Ask:
        """The same question at a moment."""
        return replace(self, at_ms=at_ms, lo_ms=at_ms - window_ms, hi_ms=at_ms + window_ms + 1)


IN_WINDOW = "t.ts_wall_ms >= $lo AND t.ts_wall_ms < $hi"
"""The condition that a decision lies in the time asked for."""


NEAREST = "ORDER BY abs(CAST(t.ts_wall_ms AS HUGEINT) - $at), t.row_no LIMIT $rows"
"""The order of decisions by their distance from the moment."""


def newest_ms(reader: SnapshotReader, ask: Ask) -> int | None:
    """When the newest decision about the entity was made, else its newest row; None without."""
    bounds = {table: bound for job in explained() for table, bound in job.bounds.items()}
    for tables in (ask.decisions, ask.levels):
        newest = None
        for table, about in tables.items():
            least = newest
            bound = bounds.get((ask.kind, table))
            if bound is not None and newest is None:
                earliest = _newest(reader, ask, bound.table, bound.where, bound.time)
                least = None if earliest is None else earliest - 1
            newest = _newest(reader, ask, table, about, "t.ts_wall_ms", least) or newest
        if newest is not None:
            return newest
    return None


def newest_rows(reader: SnapshotReader, ask: Ask, table: str) -> list[Row]:
    """Rows of the last check up to the moment, without one those of the first one after it."""
    if table not in ask.entity or not reader.has(table):
        return []
    where = ask.where(table)
    for what, when in (("max", "t.ts_wall_ms <= $at"), ("min", IN_WINDOW)):
        checked = reader.summary(
            table, f"{what}(t.ts_wall_ms) AS at_ms", f"{where} AND {when}", ask.params
        )["at_ms"]
        if checked is not None:
            return reader.rows(
                table,
                f"{where} AND t.ts_wall_ms = $checked",
                {**ask.params, "checked": checked},
                NEAREST,
            )
    return []


def _newest(
    reader: SnapshotReader, ask: Ask, table: str, about: str, time: str, after: int | None = None
) -> int | None:
    """The latest time in rows of a table about the entity, of those after a time; None without."""
    if not reader.has(table):
        return None
    later = "true" if after is None else f"t.ts_wall_ms > {after}"
    found = reader.summary(
        table, f"max({time}) AS at_ms", f"{about} AND {ask.place} AND {later}", ask.params
    )["at_ms"]
    return None if found is None else int(found)


def nearest(reader: SnapshotReader, ask: Ask) -> list[dict[str, Any]]:
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


def archived(reader: SnapshotReader, ask: Ask) -> dict[str, Any] | None:
    """The number of archive records that name the entity, their time range and connections; None
    without any."""
    if not reader.has("events"):
        return None
    sql = f"""SELECT count(*) AS rows, min(ts_wall_ms) AS first_ms, max(ts_wall_ms) AS last_ms,
      list_slice(list_sort(list(DISTINCT t.cnx_id)), 1, 3) AS connections
    FROM events AS t WHERE {ARCHIVED[ask.kind]} AND {ask.place}"""
    (row,) = reader.dicts(sql, used(sql, ask.params))
    return row if row["rows"] else None


def unknown(reader: SnapshotReader, ask: Ask) -> UserError | None:
    """The error that names the nearest known entities; None if no entity of the kind is known."""
    columns = {
        "topic": "topic",
        "connection": "cnx_id",
        "principal": "t.user",
        "client": "t.user",
        "message": "uuid",
        "subscription": "concat_ws(' ', topic, subscription)",
        "group": 't."group"',
    }
    wanted = ask.names[-1] + (f" {ask.subscription}" if ask.subscription else "")
    named_by = {table: named for job in explained() for table, named in job.named_by.items()}
    usual = (columns[ask.kind], "true")
    unions = " UNION ".join(
        f"SELECT DISTINCT {column} AS name FROM {table} AS t"
        f" WHERE {ask.place} AND {only.format(kind=ask.kind)}"
        for table in ask.entity
        if reader.has(table)
        for column, only in [named_by.get(table, usual)]
    )
    if not unions:
        return None
    sql = f"""SELECT name,
      regexp_replace(lower(name), '^[a-z-]+://', '') AS known,
      contains(known, $wanted) AS within,
      levenshtein(known, $wanted) / greatest(length(known), length($wanted)) AS far
    FROM ({unions}) WHERE name <> '' ORDER BY within DESC, far, name LIMIT 3"""
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


@dataclass(frozen=True)
class ConfiguredPolicies:
    """What sentences compare decisions with: the policies of the configuration, and the hash of a
    job's parameters under it."""

    policies: Sequence[Mapping[str, Any]]
    params_hash: Callable[[str], str]


@dataclass(frozen=True)
class Subject:
    """What a job tells of some kinds of entities."""

    place: int
    """Among the sentences of one time."""
    kinds: tuple[str, ...]
    sentences: Callable[[SnapshotReader, Ask, ConfiguredPolicies], list[Sentence]]


class Bound(NamedTuple):
    """A time up to which the newest row of a table lies at the latest, from another table."""

    table: str
    where: str
    time: str


@dataclass(frozen=True)
class Explained:
    """What a job tells of entities, by their kind, and the tables that say it."""

    place: int
    """Where its tables are listed among those of other jobs."""
    subjects: Sequence[Subject]
    decisions: Mapping[str, Tables] = field(default_factory=dict)
    """Tables of single decisions."""
    levels: Mapping[str, Tables] = field(default_factory=dict)
    """Tables of windows and levels, and those of routine decisions."""
    also_read: Sequence[str] = ()
    """Tables with further evidence."""
    named_by: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Of tables that name entities in a column of their own: it, and the rows that name a kind."""
    bounds: Mapping[tuple[str, str], Bound] = field(default_factory=dict)
    """Of tables that are slow to search, by kind and table."""


def kinds() -> list[str]:
    """The kinds of entities that the jobs tell of."""
    tables = [of for job in explained() for of in (job.decisions, job.levels)]
    return list(dict.fromkeys(kind for of in tables for kind in of))


def explained() -> list[Explained]:
    """What the jobs declare, in the order of their tables."""
    declared: list[Explained] = [part.EXPLAINED for part in parts("explain").values()]
    return sorted(declared, key=attrgetter("place"))
