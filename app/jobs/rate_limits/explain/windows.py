"""Sentences about the windows of a topic or connection: use of limits, and pauses."""

from __future__ import annotations

from app.show.explain.ask import Ask, ConfiguredPolicies
from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Quoted, Row, Sentence, Value
from app.show.explain.windows import window_sentences

_SUBJECTS = {
    "topic": "the limiter of",
    "connection": "connection",
}


def sentences(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
    """Those that contain the moment, and those in which it was limited."""
    return [
        *window_sentences(reader, ask, "topic_throttle_stats", "t.limited_times > 0", _pauses),
        *window_sentences(reader, ask, "limiter_stats", "t.throttles > 0", _limiter),
    ]


def rates(window: Row | Quoted) -> list[tuple[str, str, str]]:
    """The counters of a topic that have a limit, with that limit and their noun."""
    counters = (("messages", "limit_msgs", "message"), ("bytes", "limit_bytes", "byte"))
    return [counter for counter in counters if window[counter[1]]]


def share(window: Row | Quoted, used: str, limit: str) -> float:
    """The share of a limit per second that a topic used in a window."""
    return float(window[used] * 1000 / window["window_ms"] / window[limit])


def _pauses(row: Quoted) -> str:
    text = f"{row.topic} published {row.messages:n message} of {row.bytes:n byte} in all"
    limits = [
        f"{row.derived(f'{used}_share', share(row, used, limit)):pct} of"
        f" {format(getattr(row, limit), f'n {noun}')} per s"
        for used, limit, noun in rates(row)
    ]
    text += f", {' and '.join(limits)}" if limits else ", without a limit of its own"
    if row["limited_times"]:
        text += (
            f"; its connections were paused {row.limited_times:n time},"
            f" {row.culprit_times:n} for its own limit, {row.shared_times:n} for limits that it"
            f" shares and {row.collateral_times:n} for the limits of other topics"
        )
    paused = [
        f"{getattr(row, name):ns} {whose}"
        for name, whose in (
            ("culprit_ns", "for its own limit"),
            ("shared_ns", "for shared limits"),
            ("collateral_ns", "for the limits of other topics"),
        )
        if row[name]
    ]
    if paused:
        text += f"; it was paused for {', '.join(paused)}, summed over connections"
    return text


def _limiter(row: Quoted) -> str:
    text = f"{_SUBJECTS[row['limiter']]} {row.limiter_name}"
    if row["limit_level"] is not None:
        text += f" had at most {row.max_level:n request in flight} of {row.limit_level:n} allowed"
    elif row["utilisation"] is not None:
        text += f" used at most {_peak(row):pct} of its limit within a second"
        lowest = row.amounts("min_balance_msgs", "min_balance_bytes")
        if lowest:
            text += f", with a lowest balance of {lowest}"
    else:
        return ""
    return text + (f" and acted {row.throttles:n time}" if row["throttles"] else "")


def _peak(row: Quoted) -> Value:
    """The use of a limit by its own window: a full bucket is one second of the rate, so what lacks
    at the lowest balance has come within a second."""
    shares = [
        (row[limit] - row[least]) / row[limit]
        for limit, least in (
            ("limit_msgs", "min_balance_msgs"),
            ("limit_bytes", "min_balance_bytes"),
        )
        if row[limit] and row[least] is not None
    ]
    return row.derived("peak", max(shares)) if shares else row.utilisation
