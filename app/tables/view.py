"""What the room of a job declares of views: its own, and its part of those over several jobs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A view: the meaning of a row, its SQL and the tables that it reads."""

    name: str
    meaning: str
    sql: str
    reads: tuple[str, ...]
    place: int = 0
    """Its place in lists of views, before the order of the jobs."""


@dataclass(frozen=True)
class Quota:
    """A kind of quota, as in `quota_usage.kind`."""

    kind: str
    of_topic: bool = False
    """Its entities are topics: a quota is the topic's wherever the topic is, others are each
    broker's own."""
    lasting: bool = True
    """False: an entity is gone before a forecast comes true."""


@dataclass(frozen=True)
class JobQuotas:
    """The quotas of a job: its part of the view `quota_usage`."""

    kinds: tuple[Quota, ...]
    usage: str
    """A SELECT of kind, cluster, broker, entity, quota, used, most_used, breached, window_start_ms
    and window_ms, a row per window or check; `most_used` is null, or what the peak is taken of."""
    table: str
    """The table of its windows or checks."""
    joined: tuple[str, ...] = ()
    """Further tables that the SELECT reads."""
    growing: str = ""
    """A SELECT of kind, cluster, entity, partition, group or subscription, limit, use, time (s) until
    the limit is reached at the present growth (0 = it is) and pass_ms, of what was newest between
    $since and $until."""
    growing_reads: tuple[str, ...] = ()
    """The tables that it reads."""


RATIOS = """
WITH usage AS (
{usage}
)
SELECT u.kind, u.cluster, u.broker, u.entity, u.quota AS limit, u.used,
  CASE WHEN u.quota > 0 THEN u.used / u.quota END AS ratio,
  CASE WHEN u.quota > 0 THEN coalesce(u.most_used, u.used) / u.quota END AS peak,
  u.breached OR coalesce(u.used > u.quota, false) AS breached, u.window_start_ms, u.window_ms
FROM usage AS u
""".strip()
"""The view `quota_usage`, over a `JobQuotas.usage`."""


@dataclass(frozen=True)
class ShadowMeasure:
    """What policies do to topics or users, as in `shadow_effects.measure`."""

    name: str
    table: str
    amount: str
    """The amount of a row of the table, as SQL."""
    where: str
    """The condition on rows, as SQL."""


@dataclass(frozen=True)
class Shadowed:
    """The measures of a job: its part of the view `shadow_effects`."""

    table: str
    """The table that shows the times that a shadow has judged."""
    measures: tuple[ShadowMeasure, ...]
    entity: str = "t.topic"
    """The name of who is measured, as SQL over a row `t` of the tables."""
