"""The arithmetic of a comparison: increases between two readings, and rows of differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.show.reconcile.measures import Measure, measures
from app.show.reconcile.scrape import Scrape, Values

MS_PER_S = 1000
Key = tuple[str, str | None]
"""A measure, and the topic that it is of; None = the whole broker."""
Row = dict[str, Any]


@dataclass(frozen=True)
class ReadingSpan:
    """The time between two readings of one broker."""

    before: Scrape
    after: Scrape

    @property
    def start_ms(self) -> int:
        """The time of the first reading."""
        return self.before.at_ms

    @property
    def end_ms(self) -> int:
        """The time of the second one."""
        return self.after.at_ms


@dataclass(frozen=True)
class Shown:
    """What a broker shows for a span: its number, or why it has none."""

    value: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Counted:
    """What Weir has for a span; of a gauge or period, the least and the most that it can be."""

    value: int = 0
    bound: int = 0
    """How far it may be off for reasons of timing alone."""
    most: int | None = None
    """Of these: `value` is the least, this the most."""


@dataclass(frozen=True)
class WeirValue:
    """Weir's side of a span."""

    counted: Mapping[Key, Counted]
    blind: Mapping[str, str]
    """By job why nothing of it can be compared."""
    reloaded: frozenset[str] = frozenset()
    """Topics that were unloaded in the span."""
    reached: frozenset[str] = frozenset()
    """Jobs whose tables have the whole span."""


def shown(span: ReadingSpan, takes: Callable[[str], bool]) -> dict[Key, Shown]:
    """The broker's number for every measure of every topic that the feed `takes`.

    A counter is the increase: one that fell, or whose broker was started again, has none. A topic
    that was not there before was loaded in the span, so its counter began at 0.
    """
    before, after = span.before, span.after
    restarted = before.started_s != after.started_s
    found: dict[Key, Shown] = {}
    for topic in sorted({*before.topics, *after.topics}):
        if takes(topic):
            old = before.topics.get(topic)
            found |= _of_one(span, topic, old, after.topics.get(topic), restarted)
    return found | _of_one(span, None, before.whole, after.whole, restarted)


def _of_one(
    span: ReadingSpan, topic: str | None, old: Values | None, new: Values | None, restarted: bool
) -> dict[Key, Shown]:
    found: dict[Key, Shown] = {}
    for measure in measures().values():
        if measure.whole is (topic is None):
            one = _increase(measure, span, old, new, restarted)
            if one is not None:
                found[measure.name, topic] = one
    return found


def _increase(
    measure: Measure, span: ReadingSpan, old: Values | None, new: Values | None, restarted: bool
) -> Shown | None:
    if new is None:
        return Shown(reason="BROKER_RESTARTED" if restarted else "TOPIC_GONE")
    value = new.get(measure.name)
    if value is None:
        return None
    if measure.kind in ("gauge", "period"):
        return Shown(round(value))
    if measure.kind == "rate":
        return Shown(round(value * (span.end_ms - span.start_ms) / MS_PER_S), "RATE_ONLY")
    if restarted:
        return Shown(reason="BROKER_RESTARTED")
    if old is None:
        return Shown(round(value))
    if measure.name not in old:
        return None
    if value < old[measure.name]:
        return Shown(reason="BROKER_RESTARTED" if measure.whole else "TOPIC_RELOADED")
    return Shown(round(value - old[measure.name]))


def outside(span: ReadingSpan, takes: Callable[[str], bool]) -> dict[str, int]:
    """By measure of the cache how much of it may be of topics that the feed does not take: their
    messages, and of what left the cache also what was in it before."""
    total = 0
    for topic, values in span.after.topics.items():
        if not takes(topic):
            old = span.before.topics.get(topic, {}).get("messages_in", 0)
            new = values.get("messages_in", 0)
            total += round(new - old if new >= old else new)
    alone = all(map(takes, span.before.topics))
    there = 0 if alone else round(span.before.whole.get("cache_entries", 0))
    off = dict.fromkeys((m.name for m in measures().values() if m.whole), total)
    return {**off, "cache_evicted": total + there}


def rows_of(
    span: ReadingSpan,
    broker: Mapping[Key, Shown],
    weir: WeirValue,
    more: Mapping[str, int] | None = None,
) -> list[Row]:
    """A row for every number that is not 0 on both sides, in the order of measures and topics;
    `more` is added to the bounds of measures."""
    rows = []
    places = list(measures())
    keys = sorted({*broker, *weir.counted}, key=lambda k: (places.index(k[0]), k[1] or ""))
    for key in keys:
        name, topic = key
        measure = measures()[name]
        one, own = broker.get(key), weir.counted.get(key, Counted())
        if one is None and measure.whole and topic is not None:
            one, own = Shown(own.value, "READ_AGAIN"), Counted()
        elif one is None and topic is None:
            continue  # the broker has no such metric
        one = one or Shown(0)
        value = own.value if own.most is None else _nearest(one.value, own)
        if not one.value and not value:
            continue
        bound = own.bound + (more or {}).get(name, 0)
        difference = None if one.value is None else one.value - value
        rows.append(
            {
                "cluster": span.after.cluster,
                "broker": span.after.broker,
                "topic": topic,
                "partition": None,
                "group": None,
                "measure": name,
                "compared_job": measure.job,
                "window_start_ms": span.start_ms,
                "window_ms": span.end_ms - span.start_ms,
                "broker_value": one.value,
                "weir_value": value,
                "difference": difference,
                "bound": bound,
                "reason": _reason(measure, one, topic, weir, difference, bound),
            }
        )
    return rows


def _nearest(value: int | None, own: Counted) -> int:
    """The value of a gauge or period that is nearest to the broker's."""
    most = own.value if own.most is None else own.most
    return own.value if value is None else min(max(value, own.value), most)


def _reason(
    measure: Measure,
    one: Shown,
    topic: str | None,
    weir: WeirValue,
    difference: int | None,
    bound: int,
) -> str | None:
    """Why a row is no comparison; None if it is one."""
    if one.reason is not None and one.reason != "RATE_ONLY":
        return one.reason
    if measure.kind == "counter" and topic in weir.reloaded:
        return "TOPIC_RELOADED"
    if measure.job in weir.blind:
        return weir.blind[measure.job]
    if one.reason is not None:
        return one.reason
    if difference is None or abs(difference) <= bound:
        return None
    if measure.job not in weir.reached:
        return "NOT_REACHED"
    return "OWN_READS" if measure.least and difference > 0 else None


def differs(row: Row) -> bool:
    """Whether a row is a comparison, and its difference more than timing explains."""
    return row["reason"] is None and abs(row["difference"]) > row["bound"]
