"""The sentence about the start of a pause: the limiter, its balance, and the source of its limit."""

from __future__ import annotations

from app.jobs.rate_limits.explain.causes import cause, most_used
from app.jobs.rate_limits.explain.limits import CONFIGURATION, DecidedPolicies, Limit
from app.jobs.rate_limits.explain.pauses import Pause, Windows
from app.show.explain.nearby_rows import SnapshotReader, in_order
from app.show.explain.sentence import Draft, Quoted, Row, Sentence


def start(
    reader: SnapshotReader,
    policies: DecidedPolicies,
    windows: Windows,
    pause: Pause,
    order: tuple[int, int],
) -> Sentence:
    """The cause of the pause: the limiter, its balance, its limit, and the source of the limit."""
    first = pause.first
    draft = Draft()
    mark, limiter = draft.quote("cause", first), first["limiter"]
    window = _limiter_window(windows, first)
    tokens = limiter in ("topic", "resource_group", "broker")
    charge = _charge(reader, first) if tokens else None
    if charge is None:
        text = cause(mark, begins=True)
    else:
        size = draft.quote("charge", charge)
        text = f"{mark.topic} published {size.messages:n message} ({size.bytes:n byte})"
        text += " and used up its publish limit" if limiter == "topic" else f": {cause(mark)}"
        taken = draft.quote("taken", _taken(reader, charge))
        empty = first["balance_msgs"] is not None and first["balance_msgs"] <= 0
        before = f"{taken.messages:n message}" if empty else f"{taken.bytes:n byte}"
        text += f", with {before} in the second before"
    joined = "; its limit is"
    if tokens:
        balance = mark.amounts("balance_msgs", "balance_bytes")
        if balance:
            text, joined = f"{text}; balance {balance}", " of a limit of"
    limit = _limit(policies, window, first) if limiter == "topic" else None
    if limit is not None and _given(limit.document):
        policy = draft.quote("policy", limit.document)
        rates = [format(getattr(policy, key), unit) for key, unit in _given(limit.document)]
        text += f"{joined} {' and '.join(rates)} per s, set by the policy {policy.scope}"
        text += f" {policy.name} of "
        configured = limit.document.table == CONFIGURATION
        text += "the configuration" if configured else f"{policy.ts_wall_ms:day}"
    elif (
        window is not None
        and tokens
        and (limiter != "topic" or _is_steady(policies, window, first))
    ):
        used = draft.quote("window", window)
        text += f"{joined} {used.amounts('limit_msgs', 'limit_bytes')} per s"
        if limiter == "resource_group":
            text += f" of group {used.limiter_name}"
    elif window is not None and not tokens:
        used = draft.quote("window", window)
        text += f" (limit {used.limit_level:n}, at most {used.max_level:n} in that window)"
    most = None if limiter == "topic" else most_used(reader, first)
    if most is not None:
        unit, topic, total = most
        user = draft.quote("most", topic)
        draft.quote("total", total)
        share = user.derived("share", topic[unit] / total[unit])
        text += f"; {user.topic} used most of it, with {share:pct} of the {unit} in that window"
    text += f". {_paused(mark)}"
    if tokens and first["pause_model_ns"] is not None:
        text += f"; its balance requires {mark.pause_model_ns:ns}"
    if first["waiting"]:
        text += f", with {mark.waiting:n producer} waiting for the limiter"
    return draft.sentence(text, order)


def _paused(mark: Quoted) -> str:
    """The pause of the connection, and the throttle command that the client received."""
    if mark["action"] == "receipt":
        return (
            f"No receipt arrived for command {mark.request_id:n}:"
            f" connection {mark.cnx_id} on {mark.broker} is paused"
        )
    note = ""
    if mark["receipt_state"] == "not_supported":
        note = ", since its client does not support the throttle command"
    elif mark["receipt_state"] == "not_waited":
        note = f", and its client receives a throttle command (command {mark.request_id:n})"
    return f"Connection {mark.cnx_id} on {mark.broker} is paused{note}"


def _limiter_window(windows: Windows, first: Row) -> Row | None:
    """The statistics of the limiter that acted; None before the window is written."""
    found = windows.at(first, limiter=first["limiter"], limiter_name=first["limiter_name"])
    return found[0] if found else None


def _charge(reader: SnapshotReader, first: Row) -> Row | None:
    """The charge that emptied the bucket, where `publish_verdicts` is written."""
    found = reader.rows(
        "publish_verdicts",
        "t.cluster = $cluster AND t.broker = $broker"
        " AND t.ts_wall_ms = $ts_wall_ms AND t.ts_mono_ns = $ts_mono_ns AND t.limiter = $limiter"
        " AND t.topic = $topic AND t.balance_msgs IS NOT DISTINCT FROM $balance_msgs"
        " AND t.balance_bytes IS NOT DISTINCT FROM $balance_bytes",
        first.values,
        "LIMIT 1",
    )
    return found[0] if found else None


def _taken(reader: SnapshotReader, charge: Row) -> Row:
    """The sum charged to the limiter's bucket in the second up to a charge."""
    own = " AND t.topic = $topic" if charge["limiter"] == "topic" else ""
    return reader.summary(
        "publish_verdicts",
        "sum(t.messages)::BIGINT AS messages, sum(t.bytes)::BIGINT AS bytes",
        "t.cluster = $cluster AND t.broker = $broker AND t.limiter = $limiter"
        " AND t.ts_mono_ns > $ts_mono_ns - 1000000000"
        " AND t.ts_wall_ms BETWEEN $ts_wall_ms - 60000 AND $ts_wall_ms"
        f" AND {in_order('<=', ('ts_mono_ns', 'row_no'), charge)}{own}",
        charge.values,
    )


def _limit(policies: DecidedPolicies, window: Row | None, first: Row) -> Limit | None:
    """The limit of the culprit, if the known documents determine it."""
    topic = first["culprit_topic"]
    limit = policies.limit(first, topic, first["ts_wall_ms"])
    if limit is None or policies.is_configured(first) or limit.document["scope"] == "topic":
        return limit  # a document for the topic itself decides alone
    if window is None:
        return None
    at_end = policies.limit(first, topic, window["window_start_ms"] + window["window_ms"] - 1)
    agrees = at_end is not None and (at_end.msgs, at_end.bytes) == (
        window["limit_msgs"] or 0,
        window["limit_bytes"] or 0,
    )
    return limit if agrees else None


def _is_steady(policies: DecidedPolicies, window: Row, first: Row) -> bool:
    """Whether no known document changed the culprit's limit before its window ended."""
    topic, end_ms = first["culprit_topic"], window["window_start_ms"] + window["window_ms"] - 1
    return policies.limit(first, topic, first["ts_wall_ms"]) == policies.limit(first, topic, end_ms)


def _given(document: Row) -> list[tuple[str, str]]:
    """The rates above 0 that a document sets, with their units."""
    units = {
        "publishRateInMsgs": "n message",
        "publishRateInBytes": "n byte",
        "maxPublishRatePerTopicInMessages": "n message",
        "maxPublishRatePerTopicInBytes": "n byte",
    }
    return [(key, unit) for key, unit in units.items() if (document.values.get(key) or 0) > 0]
