"""Sentences about the reads of a subscription from a cache, where `cache_reads` is written."""

from __future__ import annotations

from app.explain.ask import IN_WINDOW, Ask
from app.explain.reader import Reader, summary_of, used
from app.explain.sentence import Sentence, compose

_OF = ("cluster", "broker", "policy", "topic", "subscription")
_NAMES = ", ".join(f"min(t.{name}) AS {name}" for name in _OF)
_WHAT = (
    "min(t.ts_wall_ms) AS first_ms, max(t.ts_wall_ms) AS last_ms, min(t.rule) AS rule,"
    " count(*) AS reads, count(*) FILTER (WHERE t.hit) AS hits"
)


def sentences(reader: Reader, ask: Ask) -> list[Sentence]:
    """The reads of the subscription around the moment that each cache would have answered."""
    if "cache_reads" not in ask.entity or not reader.has("cache_reads"):
        return []
    where = f"{ask.where('cache_reads')} AND {IN_WINDOW}"
    of = ", ".join(f"t.{name}" for name in _OF)
    sql = f"SELECT {of}, {_WHAT} FROM cache_reads AS t WHERE {where} GROUP BY {of} ORDER BY {of}"
    result = []
    for number, found in enumerate(reader.dicts(sql, used(sql, ask.params))):
        bounds = {name: found[name] for name in _OF}
        params = {**bounds, "lo": ask.lo_ms, "hi": ask.hi_ms}
        within = " AND ".join(f"t.{name} = ${name}" for name in _OF)
        row = summary_of(
            "cache_reads", f"{_NAMES}, {_WHAT}", f"{within} AND {IN_WINDOW}", params, found
        )
        text = (
            "Up to {reads.last_ms:clock} the cache ({reads.policy}) on {reads.broker}"
            " would have answered {reads.hits:n} of {reads.reads:n read} of subscription"
            " {reads.subscription} of {reads.topic}"
        )
        result.append(compose(found["first_ms"], found["rule"], text + ".", (number,), reads=row))
    return result
