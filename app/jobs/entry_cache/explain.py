"""Sentences about the cache: its windows for a topic, and the reads of a subscription where
`cache_reads` is written."""

from __future__ import annotations

from app.show.explain.ask import (
    IN_WINDOW,
    Ask,
    ConfiguredPolicies,
    Explained,
    Subject,
    of_subscription,
    of_topic,
)
from app.show.explain.nearby_rows import SnapshotReader, summary_of, used
from app.show.explain.sentence import Draft, Quoted, Sentence
from app.show.explain.windows import PLACE as WINDOWS
from app.show.explain.windows import window_sentences

_OF = ("cluster", "broker", "policy", "topic", "subscription")
_NAMES = ", ".join(f"min(t.{name}) AS {name}" for name in _OF)
_WHAT = (
    "min(t.ts_wall_ms) AS first_ms, max(t.ts_wall_ms) AS last_ms, min(t.rule) AS rule,"
    " count(*) AS reads, count(*) FILTER (WHERE t.hit) AS hits"
)


def _reads(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
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
        draft = Draft()
        reads = draft.quote(
            "reads",
            summary_of(
                "cache_reads", f"{_NAMES}, {_WHAT}", f"{within} AND {IN_WINDOW}", params, found
            ),
        )
        text = (
            f"Up to {reads.last_ms:clock} the cache ({reads.policy}) on {reads.broker}"
            f" would have answered {reads.hits:n} of {reads.reads:n read} of subscription"
            f" {reads.subscription} of {reads.topic}"
        )
        result.append(draft.sentence(text, (number,), found["first_ms"]))
    return result


def _window(row: Quoted) -> str:
    if not row["hits"] + row["misses"] + row["inserted"]:
        return ""
    text = f"the cache ({row.policy}) would have answered"
    if row["hits"] + row["misses"]:
        text += (
            f" {row.hits:n} of {row.derived('reads', row['hits'] + row['misses']):n read} of"
            f" {row.topic}, with {row.miss_bytes:n byte} from storage"
        )
    else:
        text += f" no read of {row.topic}: there were none"
    if row["evicted_wanted"]:
        text += f"; {row.evicted_wanted:n entry} were evicted while reads were expected"
    return text


EXPLAINED = Explained(
    place=40,
    subjects=(
        Subject(
            WINDOWS,
            ("topic",),
            lambda reader, ask, _: window_sentences(
                reader, ask, "cache_stats", "t.evicted_wanted > 0", _window
            ),
        ),
        Subject(60, ("subscription",), _reads),
    ),
    levels={
        "topic": {"cache_stats": of_topic()},
        "subscription": {"cache_reads": of_subscription()},
    },
)
