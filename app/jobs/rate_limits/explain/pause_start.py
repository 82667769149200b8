"""The sentence about the start of a pause: the limiter, its balance, and the source of its limit."""

from __future__ import annotations

from app.explain.reader import Reader, in_order
from app.explain.sentence import Row, Sentence, compose
from app.jobs.rate_limits.explain.causes import cause, most_used
from app.jobs.rate_limits.explain.limits import CONFIGURATION, Limit, Policies
from app.jobs.rate_limits.explain.pauses import Pause, Windows


def start(
    reader: Reader, policies: Policies, windows: Windows, pause: Pause, order: tuple[int, int]
) -> Sentence:
    """The cause of the pause: the limiter, its balance, its limit, and the source of the limit."""
    first = pause.first
    rows = {"cause": first}
    limiter = first["limiter"]
    text = cause(first, "cause")
    window = _limiter_window(windows, first, policies)
    tokens = limiter in ("topic", "resource_group", "broker")
    if tokens:
        kind = "msgs" if _is_empty(first["balance_msgs"]) else "bytes"
        noun = "message" if kind == "msgs" else "byte"
        charge = _charge(reader, first)
        if charge is not None:
            rows["charge"] = charge
            size = "{charge.messages:n message} ({charge.bytes:n byte})"
            text = (
                f"{{cause.topic}} published {size} and {text.partition(' ')[2]}"
                if limiter == "topic"
                else f"{{cause.topic}} published {size}: {text}"
            )
            taken = _taken(reader, charge)
            rows["taken"] = taken
            which = "messages" if kind == "msgs" else "bytes"
            text += f", with {{taken.{which}:n {noun}}} in the second before"
        balances = [
            f"{{cause.{name}:n {what}}}"
            for name, what in (("balance_msgs", "message"), ("balance_bytes", "byte"))
            if first[name] is not None
        ]
        text += f"; balance {' and '.join(balances)}" if balances else ""
        joined = " of a limit of" if balances else "; its limit is"
    limit = _limit(policies, window, first) if limiter == "topic" else None
    if limit is not None and _given(limit.document):
        rows["policy"] = limit.document
        text += (
            f"{joined} "
            + " and ".join(f"{{policy.{key}:n {noun}}}" for key, noun in _given(limit.document))
            + " per s, set by the policy {policy.scope} {policy.name} "
        )
        text += (
            "of the configuration"
            if limit.document.table == CONFIGURATION
            else "of {policy.ts_wall_ms:day}"
        )
    elif (
        window is not None
        and tokens
        and (limiter != "topic" or _is_steady(policies, window, first))
    ):
        rows["window"] = window
        text += (
            f"{joined} "
            + " and ".join(
                f"{{window.{name}:n {noun}}}"
                for name, noun in (("limit_msgs", "message"), ("limit_bytes", "byte"))
                if window[name] is not None
            )
            + " per s"
        )
        if limiter == "resource_group":
            text += " of group {window.limiter_name}"
    elif window is not None and not tokens:
        rows["window"] = window
        text += " (limit {window.limit_level:n}, at most {window.max_level:n} in that window)"
    if limiter != "topic":
        most = most_used(reader, first)
        if most is not None:
            used, rows["most"], rows["total"] = most
            text += (
                "; {most.topic} used most of it, with"
                f" {{most.{used} / total.{used}:pct}} of the {used} in that window"
            )
    text += f". {_paused(first)}"
    if tokens and first["pause_model_ns"] is not None:
        text += "; its balance requires {cause.pause_model_ns:ns}"
    if first["waiting"]:
        text += ", with {cause.waiting:n producer} waiting for the limiter"
    if not text.startswith("{"):
        text = text[0].upper() + text[1:]
    return compose(first["ts_wall_ms"], first["rule"], text + ".", order, **rows)


def _paused(first: Row) -> str:
    """The pause of the connection, and the throttle command that the client received."""
    if first["action"] == "receipt":
        return (
            "No receipt arrived for command {cause.request_id:n}:"
            " connection {cause.cnx_id} on {cause.broker} is paused"
        )
    note = ""
    if first["receipt_state"] == "not_supported":
        note = ", since its client does not support the throttle command"
    elif first["receipt_state"] == "not_waited":
        note = ", and its client receives a throttle command (command {cause.request_id:n})"
    return f"Connection {{cause.cnx_id}} on {{cause.broker}} is paused{note}"


def _is_empty(balance: int | None) -> bool:
    return balance is not None and balance <= 0


def _limiter_window(windows: Windows, first: Row, policies: Policies) -> Row | None:
    """The statistics of the limiter that acted; None before the window is written."""
    limiter = first["limiter"]
    if first["limiter_name"] is not None:
        found = windows.at(first, limiter=limiter, limiter_name=first["limiter_name"])
        return found[0] if found else None
    # a row of an earlier version does not name the limit
    group = policies.group(first, first["culprit_topic"]) if limiter == "resource_group" else None
    if limiter == "io_thread" or (limiter == "resource_group" and group is None):
        acted = [row for row in windows.at(first, limiter=limiter) if row["throttles"]]
        return acted[0] if len(acted) == 1 else None
    name = {
        "topic": first["culprit_topic"],
        "broker": first["broker"],
        "connection": first["cnx_id"],
        "resource_group": group,
    }.get(limiter)
    found = windows.at(first, limiter=limiter, limiter_name=name) if name else []
    return found[0] if found else None


def _charge(reader: Reader, first: Row) -> Row | None:
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


def _taken(reader: Reader, charge: Row) -> Row:
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


def _limit(policies: Policies, window: Row | None, first: Row) -> Limit | None:
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


def _is_steady(policies: Policies, window: Row, first: Row) -> bool:
    """Whether no known document changed the culprit's limit before its window ended."""
    topic, end_ms = first["culprit_topic"], window["window_start_ms"] + window["window_ms"] - 1
    return policies.limit(first, topic, first["ts_wall_ms"]) == policies.limit(first, topic, end_ms)


def _given(document: Row) -> list[tuple[str, str]]:
    """The rates above 0 that a document sets, with their units."""
    nouns = {
        "publishRateInMsgs": "message",
        "publishRateInBytes": "byte",
        "maxPublishRatePerTopicInMessages": "message",
        "maxPublishRatePerTopicInBytes": "byte",
    }
    return [(key, noun) for key, noun in nouns.items() if (document.values.get(key) or 0) > 0]
