"""Sentences about the windows around a moment: pauses, limiters, chunks, caches."""

from __future__ import annotations

from app.explain.ask import Ask
from app.explain.reader import Reader
from app.explain.sentence import Row, Sentence, compose

_TOUCHES = "t.ts_wall_ms > $lo AND t.window_start_ms < $hi"
_HOLDS = "t.ts_wall_ms > $at AND t.window_start_ms <= $at"
_NEAREST = "ORDER BY abs(CAST(t.window_start_ms AS HUGEINT) - $at), t.row_no LIMIT $rows"
_SPAN = "In the {window.window_ms:ms} from {window.window_start_ms:clock} "
_SUBJECTS = {
    "topic": "the limiter of {window.limiter_name}",
    "connection": "connection {window.limiter_name}",
}


def sentences(reader: Reader, ask: Ask) -> list[Sentence]:
    """The windows of a topic or connection: those that contain the moment, and of the others that
    overlap the requested time those in which it was limited."""
    result: list[Sentence] = []
    for table, notable, describe in (
        ("topic_throttle_stats", "t.limited_times > 0", _pauses),
        ("limiter_stats", "t.throttles > 0", _limiter),
        ("chunk_topic_stats", "false", _chunks),
        ("cache_stats", "t.evicted_wanted > 0", _cache),
    ):
        if table in ask.entity:
            when = f"{_TOUCHES} AND (({_HOLDS}) OR {notable})"
            rows = reader.rows(table, f"{ask.where(table)} AND {when}", ask.params, _NEAREST)
            result += [
                compose(
                    row["window_start_ms"],
                    row["rule"],
                    _SPAN + text + ".",
                    (table, row["row_no"]),
                    window=row,
                )
                for row in rows
                if (text := describe(row))
            ]
    return result


def _pauses(row: Row) -> str:
    text = "{window.topic} published {window.messages:n message} of {window.bytes:n byte} in all"
    limits = [
        f"{{window.{used} * 1000 / window.window_ms / window.{limit}:pct}} of"
        f" {{window.{limit}:n {noun}}} per s"
        for used, limit, noun in (
            ("messages", "limit_msgs", "message"),
            ("bytes", "limit_bytes", "byte"),
        )
        if row[limit]
    ]
    text += f", {' and '.join(limits)}" if limits else ", without a limit of its own"
    if row["limited_times"]:
        text += (
            "; its connections were paused {window.limited_times:n time},"
            " {window.culprit_times:n} for its own limit"
        )
        if row["shared_times"] is not None:
            text += ", {window.shared_times:n} for limits that it shares"
        text += " and {window.collateral_times:n} for the limits of other topics"
    paused = [
        f"{{window.{name}:ns}} {words}"
        for name, words in (
            ("culprit_ns", "for its own limit"),
            ("shared_ns", "for shared limits"),
            ("collateral_ns", "for the limits of other topics"),
        )
        if row[name]
    ]
    if paused:
        text += f"; it was paused for {', '.join(paused)}, summed over connections"
    return text


def _limiter(row: Row) -> str:
    text = _SUBJECTS[row["limiter"]]
    if row["limit_level"] is not None:
        text += (
            " had at most {window.max_level:n request in flight} of {window.limit_level:n} allowed"
        )
    elif row["utilisation"] is not None:
        text += f" used at most {{{_peak(row)}:pct}} of its limit within a second"
        lowest = [
            f"{{window.{name}:n {noun}}}"
            for name, noun in (("min_balance_msgs", "message"), ("min_balance_bytes", "byte"))
            if row[name] is not None
        ]
        if lowest:
            text += f", with a lowest balance of {' and '.join(lowest)}"
    else:
        return ""
    return text + (" and acted {window.throttles:n time}" if row["throttles"] else "")


def _peak(row: Row) -> str:
    """The use of a limit by its own window: a full bucket is one second of the rate, so what lacks
    at the lowest balance has come within a second."""
    shares = [
        f"(window.{limit} - window.{least}) / window.{limit}"
        for limit, least in (
            ("limit_msgs", "min_balance_msgs"),
            ("limit_bytes", "min_balance_bytes"),
        )
        if row[limit] and row[least] is not None
    ]
    if not shares:
        return "window.utilisation"
    return shares[0] if len(shares) == 1 else f"max({', '.join(shares)})"


def _chunks(row: Row) -> str:
    return (
        "{window.chunks:n chunk} of {window.chunk_bytes:n byte} in all were published to"
        " {window.topic} by {window.producers:n producer}; at most"
        " {window.max_contexts:n large message} waited for chunks in one consumer"
    )


def _cache(row: Row) -> str:
    if not row["hits"] + row["misses"] + row["inserted"]:
        return ""
    text = "the cache ({window.policy}) would have answered"
    if row["hits"] + row["misses"]:
        text += (
            " {window.hits:n} of {window.hits + window.misses:n read} of {window.topic},"
            " with {window.miss_bytes:n byte} from storage"
        )
    else:
        text += " no read of {window.topic}: there were none"
    if row["evicted_wanted"]:
        text += "; {window.evicted_wanted:n entry} were evicted while reads were expected"
    return text
