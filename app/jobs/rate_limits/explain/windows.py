"""Sentences about the windows of a topic or connection: use of limits, and pauses."""

from __future__ import annotations

from app.explain.ask import Ask, Configured
from app.explain.reader import Reader
from app.explain.sentence import Row, Sentence
from app.explain.windows import window_sentences

_SUBJECTS = {
    "topic": "the limiter of {window.limiter_name}",
    "connection": "connection {window.limiter_name}",
}


def sentences(reader: Reader, ask: Ask, configured: Configured) -> list[Sentence]:
    """Those that contain the moment, and those in which it was limited."""
    return [
        *window_sentences(reader, ask, "topic_throttle_stats", "t.limited_times > 0", _pauses),
        *window_sentences(reader, ask, "limiter_stats", "t.throttles > 0", _limiter),
    ]


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
