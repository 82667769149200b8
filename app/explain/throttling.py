"""Pauses of connections in words: who caused each, who stood still, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.explain.ask import IN_WINDOW, THROTTLED, Ask
from app.explain.limits import CONFIGURATION, Limit, Policies
from app.explain.reader import Reader, columns, row_of, summary_of, used
from app.explain.saying import Row, Sentence, say

NAMED = 3
"""Victims that one sentence names."""
ORDER = "t.ts_wall_ms, t.ts_mono_ns, t.row_no"

# Connections with a row in the time asked for, and those that were paused when it began.
_CONNECTIONS = f"""
SELECT t.cluster, t.broker, t.cnx_id FROM throttle_events AS t
WHERE {{about}} AND {{place}} AND {IN_WINDOW} GROUP BY ALL
UNION
SELECT cluster, broker, cnx_id FROM (
  SELECT t.cluster, t.broker, t.cnx_id, arg_max(t.reads_paused, ({ORDER})) AS paused
  FROM throttle_events AS t WHERE {{before}} AND {{place}} AND t.ts_wall_ms < $lo GROUP BY ALL
) WHERE paused
"""
_FURTHER = {
    "marks": "count(*)", "most_waiting": "max(t.waiting)", "least_msgs": "min(t.balance_msgs)",
    "least_bytes": "min(t.balance_bytes)",
}
"""What is said of further marks while a connection is paused, by name."""

# Pauses are numbered as in the view throttle_intervals. Of each its first and its last row, and
# the first and the sums of the further marks in between.
_PAUSES = f"""
WITH flagged AS (
  SELECT {columns("throttle_events")},
    coalesce(lag(t.reads_paused) OVER of_connection, false) AS were_paused
  FROM throttle_events AS t
  SEMI JOIN (
    SELECT unnest($clusters) AS cluster, unnest($brokers) AS broker, unnest($connections) AS cnx_id
  ) AS c ON c.cluster = t.cluster AND c.broker = t.broker AND c.cnx_id = t.cnx_id
  WINDOW of_connection AS (PARTITION BY t.cluster, t.broker, t.cnx_id ORDER BY {ORDER})
), numbered AS (
  SELECT *, t.reads_paused AND NOT t.were_paused AS starts,
    t.were_paused AND NOT t.reads_paused AS ends, t.were_paused AND t.action = 'mark' AS further,
    sum(CASE WHEN t.reads_paused AND NOT t.were_paused THEN 1 ELSE 0 END) OVER (
      PARTITION BY t.cluster, t.broker, t.cnx_id ORDER BY {ORDER}
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS pause_no
  FROM flagged AS t
), pauses AS (
SELECT t.cluster, t.broker, t.cnx_id, t.pause_no,
  arg_min(t, ({ORDER})) FILTER (WHERE t.starts) AS first,
  arg_min(t, ({ORDER})) FILTER (WHERE t.ends) AS last,
  arg_min(t, ({ORDER})) FILTER (WHERE t.further) AS next,
  {", ".join(f"{what} FILTER (WHERE t.further) AS {name}" for name, what in _FURTHER.items())},
  bool_or({{about}}) AS concerned
FROM numbered AS t
WHERE t.pause_no > 0 AND (t.reads_paused OR t.were_paused)
GROUP BY t.cluster, t.broker, t.cnx_id, t.pause_no
)
SELECT * FROM pauses AS p
WHERE p.concerned AND p.first.ts_wall_ms < $hi AND (p.last IS NULL OR p.last.ts_wall_ms >= $lo)
ORDER BY abs(p.first.ts_wall_ms - $at), p.cluster, p.broker, p.cnx_id LIMIT $rows
"""
_CAUSES = {
    "topic": "{culprit.culprit_topic} ran out of its limit on publishing",
    "resource_group": "the resource group of {culprit.culprit_topic}{group} ran out of its limit",
    "broker": "broker {culprit.broker} ran out of its own limit at a publish of"
              " {culprit.culprit_topic}",
    "connection": "a publish of {culprit.culprit_topic} took connection {culprit.cnx_id} to its"
                  " limit of requests in flight",
    "io_thread": "a publish of {culprit.culprit_topic} took the IO thread of connection"
                 " {culprit.cnx_id} above its share of buffered bytes",
}
"""How a limiter came to act."""
_ENDINGS = {
    "released": "the limiter is back at its target{balance}",
    "limit_removed": "the limit was removed",
    "in_flight_half": "requests in flight have fallen to half of the limit",
    "buffer_half": "buffered bytes have fallen to half of the share",
    "connection_closed": "the connection was closed and its marks went with it",
}
"""Why a pause ended, by rule."""


@dataclass(frozen=True)
class Pause:
    """One pause of a connection: its first and last row, and the further marks during it."""

    first: Row
    last: Row | None
    next: Row | None
    further: Row


@dataclass(frozen=True)
class Windows:
    """Rows of statistics by what they are about, for the times of some pauses."""

    rows: list[Row]

    def find(self, at: Row, **what: Any) -> Row | None:
        """The row of the window that holds the time of a decision."""
        what |= {"cluster": at["cluster"], "broker": at["broker"]}
        for row in self.rows:
            inside = 0 <= at["ts_wall_ms"] - row["window_start_ms"] < row["window_ms"]
            if inside and all(row.values.get(name) == value for name, value in what.items()):
                return row
        return None


def sentences(reader: Reader, ask: Ask, policies: Policies) -> list[Sentence]:
    """What limiters did to the topic or connection around the moment."""
    pauses = _pauses(reader, ask) if reader.has("throttle_events") else []
    windows = _windows(reader, pauses)
    said: list[Sentence] = []
    for number, pause in enumerate(pauses):
        said += _start(reader, policies, windows, pause, (number, 0))
        said += _victims(ask, windows, pause, (number, 1))
        said += _further(pause, (number, 2))
        said.append(_end(reader, pause, (number, 3)))
    return said


def _pauses(reader: Reader, ask: Ask) -> list[Pause]:
    """The pauses that overlap the time asked for, nearest to the moment first."""
    own = "list_contains($names, t.cnx_id)"
    about, before = (THROTTLED, "true") if ask.kind == "topic" else (own, own)
    sql = _CONNECTIONS.format(about=about, before=before, place=ask.place)
    found = reader.dicts(sql, used(sql, ask.params))
    if not found:
        return []
    sql = _PAUSES.format(about=about)
    return [_read(values) for values in reader.dicts(sql, used(sql, {
        **ask.params, "clusters": [row["cluster"] for row in found],
        "brokers": [row["broker"] for row in found],
        "connections": [row["cnx_id"] for row in found],
    }))]


def _read(found: Mapping[str, Any]) -> Pause:
    table = "throttle_events"
    first, last, following = (
        None if found[name] is None else row_of(table, found[name])
        for name in ("first", "last", "next")
    )
    assert first is not None
    bounds = {name: first[name] for name in ("cluster", "broker", "cnx_id")}
    places = {"after": _place(first)}
    until = "true"
    if last is not None:
        places["until"] = _place(last)
        until = f"({ORDER}) <= {places['until']}"
    where = (" AND ".join(f"t.{name} = ${name}" for name in bounds)
             + f" AND t.action = 'mark' AND ({ORDER}) > {places['after']} AND {until}")
    what = ", ".join(f"{sql} AS {name}" for name, sql in _FURTHER.items())
    values = {name: found[name] for name in _FURTHER}
    return Pause(first, last, following, summary_of(table, what, where, bounds, values))


def _place(row: Row) -> str:
    return f"({row['ts_wall_ms']}, {row['ts_mono_ns']}, {row['row_no']})"


def _windows(reader: Reader, pauses: list[Pause]) -> Windows:
    """Statistics of the limiters and topics of pauses."""
    if not pauses:
        return Windows([])
    times = [pause.first["ts_wall_ms"] for pause in pauses]
    names = {
        name for pause in pauses for name in (
            pause.first["culprit_topic"], pause.first["topic"], pause.first["broker"],
            pause.first["cnx_id"], *(pause.first["collateral_topics"] or ()),
        ) if name is not None
    }
    params = {"least": min(times), "most": max(times), "named": sorted(names)}
    inside = "t.ts_wall_ms > $least AND t.window_start_ms <= $most"
    shared = "OR t.limiter IN ('resource_group', 'io_thread')"
    return Windows([
        *reader.rows("topic_throttle_stats", f"{inside} AND list_contains($named, t.topic)",
                     params),
        *reader.rows("limiter_stats",
                     f"{inside} AND (list_contains($named, t.limiter_name) {shared})", params),
    ])


def _start(
    reader: Reader, policies: Policies, windows: Windows, pause: Pause, order: tuple[int, int]
) -> list[Sentence]:
    """How the pause came about: the limiter, its balance, its limit, and where that is from."""
    first = pause.first
    rows = {"culprit": first}
    limiter, culprit = first["limiter"], first["culprit_topic"]
    group = policies.group(first, culprit) if limiter == "resource_group" else None
    text = _CAUSES[limiter].replace("{group}", f" ({group})" if group else "")
    window = _limiter_window(windows, first, group)
    tokens = limiter in ("topic", "resource_group", "broker")
    if tokens:
        kind = "msgs" if _is_empty(first["balance_msgs"]) else "bytes"
        noun = "message" if kind == "msgs" else "byte"
        charge = _charge(reader, first)
        if charge is not None:
            rows["charge"] = charge
            verb = "published" if limiter == "topic" else "brought"
            text = f"{{culprit.topic}} {verb} {{charge.messages:n message}}" \
                f" ({{charge.bytes:n byte}}): {text}"
            taken = _taken(reader, charge)
            rows["taken"] = taken
            which = "messages" if kind == "msgs" else "bytes"
            text += f", with {{taken.{which}:n {noun}}} in the second up to then"
        text += f"; balance {{culprit.balance_{kind}:n {noun}}}"
        if first["balance_" + ("bytes" if kind == "msgs" else "msgs")] is not None:
            other = "bytes" if kind == "msgs" else "msgs"
            text += f" and {{culprit.balance_{other}:n {'byte' if kind == 'msgs' else 'message'}}}"
    limit = _limit(policies, window, first) if limiter == "topic" else None
    if limit is not None:
        rows["policy"] = limit.document
        text += " of a limit of " + " and ".join(
            f"{{policy.{key}:n {noun}}}" for key, noun in _given(limit, limit.document)
        ) + " per s"
    elif window is not None and tokens and (limiter != "topic" or _is_steady(
            policies, window, first)):
        rows["window"] = window
        text += " of a limit of " + " and ".join(
            f"{{window.{name}:n {noun}}}" for name, noun in (
                ("limit_msgs", "message"), ("limit_bytes", "byte")) if window[name] is not None
        ) + " per s"
    elif window is not None and not tokens:
        rows["window"] = window
        text += " (limit {window.limit_level:n}, at most {window.max_level:n} in that window)"
    text += f". {_paused(first)}"
    if tokens and first["pause_model_ns"] is not None:
        text += "; by the balance for {culprit.pause_model_ns:ns}"
    if first["waiting"]:
        text += ", with {culprit.waiting:n producer} waiting for the limiter"
    said = [say(first["ts_wall_ms"], first["rule"], text + ".", order, **rows)]
    if limit is not None:
        said.append(_where_from(first, limit, order))
    return said


def _paused(first: Row) -> str:
    """What was done to the connection, and what the client was told."""
    if first["action"] == "receipt":
        return "No receipt came for command {culprit.request_id:n}:" \
            " connection {culprit.cnx_id} on {culprit.broker} is paused"
    told = ""
    if first["receipt_state"] == "not_supported":
        told = ", since its client does not know the throttle command"
    elif first["receipt_state"] == "not_waited":
        told = ", and its client is told (command {culprit.request_id:n})"
    return f"Connection {{culprit.cnx_id}} on {{culprit.broker}} is paused{told}"


def _is_empty(balance: int | None) -> bool:
    return balance is not None and balance <= 0


def _limiter_window(windows: Windows, first: Row, group: str | None) -> Row | None:
    """The statistics of the limiter that acted; None if they are not there yet."""
    limiter = first["limiter"]
    name = {"topic": first["culprit_topic"], "broker": first["broker"],
            "connection": first["cnx_id"], "resource_group": group}.get(limiter)
    if name is None:
        return None
    return windows.find(first, limiter=limiter, limiter_name=name)


def _charge(reader: Reader, first: Row) -> Row | None:
    """The charge that emptied the bucket, where charges are kept."""
    found = reader.rows(
        "publish_verdicts", "t.cluster = $cluster AND t.broker = $broker"
        " AND t.ts_wall_ms = $ts_wall_ms AND t.ts_mono_ns = $ts_mono_ns AND t.limiter = $limiter"
        " AND t.topic = $topic AND t.balance_msgs IS NOT DISTINCT FROM $balance_msgs"
        " AND t.balance_bytes IS NOT DISTINCT FROM $balance_bytes",
        first.values, "LIMIT 1",
    )
    return found[0] if found else None


def _taken(reader: Reader, charge: Row) -> Row:
    """What the limiter's bucket was charged in the second up to a charge."""
    own = " AND t.topic = $topic" if charge["limiter"] == "topic" else ""
    return reader.summary(
        "publish_verdicts", "sum(t.messages)::BIGINT AS messages, sum(t.bytes)::BIGINT AS bytes",
        "t.cluster = $cluster AND t.broker = $broker AND t.limiter = $limiter"
        " AND t.ts_mono_ns > $ts_mono_ns - 1000000000"
        " AND (t.ts_mono_ns, t.row_no) <= ($ts_mono_ns, $row_no)"
        " AND t.ts_wall_ms BETWEEN $ts_wall_ms - 60000 AND $ts_wall_ms" + own, charge.values,
    )


def _limit(policies: Policies, window: Row | None, first: Row) -> Limit | None:
    """The limit of the culprit, if the documents that are known agree with the statistics."""
    topic = first["culprit_topic"]
    limit = policies.limit(first, topic, first["ts_wall_ms"])
    if limit is None or policies.is_configured(first):
        return limit
    if window is None:
        return None
    at_end = policies.limit(first, topic, window["window_start_ms"] + window["window_ms"] - 1)
    agrees = at_end is not None and (at_end.msgs, at_end.bytes) == (
        window["limit_msgs"] or 0, window["limit_bytes"] or 0)
    return limit if agrees else None


def _is_steady(policies: Policies, window: Row, first: Row) -> bool:
    """Whether no known document changed the culprit's limit before its window ended."""
    topic, end_ms = first["culprit_topic"], window["window_start_ms"] + window["window_ms"] - 1
    return (policies.limit(first, topic, first["ts_wall_ms"])
            == policies.limit(first, topic, end_ms))


def _given(limit: Limit, document: Row) -> list[tuple[str, str]]:
    """The rates above 0 that a document gives, with what they count."""
    nouns = {"publishRateInMsgs": "message", "publishRateInBytes": "byte",
             "maxPublishRatePerTopicInMessages": "message",
             "maxPublishRatePerTopicInBytes": "byte"}
    return [(key, noun) for key, noun in nouns.items() if (document.values.get(key) or 0) > 0]


def _where_from(first: Row, limit: Limit, order: tuple[int, int]) -> Sentence:
    """Which document set the limit."""
    document = limit.document
    text = "This limit is set by the policy of scope {policy.scope}, name {policy.name}"
    if document.table == CONFIGURATION:
        text += ", in the configuration"
    else:
        text += ", which came at {policy.ts_wall_ms:day}"
    return say(first["ts_wall_ms"], first["rule"], text + ".", (*order, 1),
               decision=first, policy=document)


def _victims(
    ask: Ask, windows: Windows, pause: Pause, order: tuple[int, int]
) -> list[Sentence]:
    """The topics that stood still through no fault of their own, and what they used."""
    first = pause.first
    culprit = first["culprit_topic"]
    others = {first["topic"], *(first["collateral_topics"] or ())} - {culprit, None}
    if not others:
        return []
    rows: dict[str, Row] = {"pause": first}
    ranked = []
    for topic in others:
        window = windows.find(first, topic=topic)
        ranked.append((topic not in ask.names, -(_share(window) or 0), topic, window))
    parts = []
    for number, (_, _, topic, window) in enumerate(sorted(ranked, key=lambda r: r[:3])[:NAMED]):
        name = f"victim_{'abc'[number]}"
        if window is None:
            parts.append(topic)
            continue
        rows[name] = window
        share = _share(window)
        if share is None:
            parts.append(f"{{{name}.topic}} (it has no limit)")
        else:
            parts.append(f"{{{name}.topic}} (it used {{{_expression(name, window)}:pct}}"
                         " of its limit)")
    more = len(others) - len(parts)
    if more:
        named = len(first["collateral_topics"]) - more
        parts.append(f"{{len(pause.collateral_topics) - {named}:n other topic}}")
    text = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    return [say(first["ts_wall_ms"], first["rule"], f"On that connection stood still too: {text}.",
                order, **rows)]


def _rates(window: Row) -> list[tuple[str, str]]:
    return [(used_, limit) for used_, limit in (
        ("messages", "limit_msgs"), ("bytes", "limit_bytes")) if window[limit]]


def _share(window: Row | None) -> float | None:
    """The larger share of its limits that a topic used in a window; None without limits."""
    if window is None or not _rates(window):
        return None
    return max(window[n] * 1000 / window["window_ms"] / window[lim] for n, lim in _rates(window))


def _expression(name: str, window: Row) -> str:
    shares = [f"{name}.{n} * 1000 / {name}.window_ms / {name}.{limit}"
              for n, limit in _rates(window)]
    return shares[0] if len(shares) == 1 else f"max({', '.join(shares)})"


def _further(pause: Pause, order: tuple[int, int]) -> list[Sentence]:
    """Further marks of a connection that is paused already."""
    if pause.next is None:
        return []
    text = "While connection {next.cnx_id} was paused, {further.marks:n more mark} came, the first" \
        " from {next.topic}: frames that had been received are still charged"
    if pause.further["most_waiting"]:
        text += "; at most {further.most_waiting:n producer} waited"
    lowest = [f"{{further.{name}:n {noun}}}" for name, noun in (
        ("least_msgs", "message"), ("least_bytes", "byte")) if pause.further[name] is not None]
    if lowest:
        text += f"; lowest balance {' and '.join(lowest)}"
    return [say(pause.next["ts_wall_ms"], pause.next["rule"], text + ".", order,
                next=pause.next, further=pause.further)]


def _end(reader: Reader, pause: Pause, order: tuple[int, int]) -> Sentence:
    """How the pause ended, or that it has not."""
    first, last = pause.first, pause.last
    if last is None:
        newest = reader.summary(
            "throttle_events", "max(t.ts_wall_ms) AS newest_ms",
            "t.cluster = $cluster AND t.broker = $broker", {
                "cluster": first["cluster"], "broker": first["broker"]})
        text = "No row ends the pause of connection {start.cnx_id}: it lasts at the newest row of" \
            " {start.broker}, of {newest.newest_ms:clock}"
        if first["pause_model_ns"] is not None:
            text += "; by its first balance it would end at" \
                " {start.ts_wall_ms + start.pause_model_ns / 1000000:clock} at the earliest"
        return say(newest["newest_ms"], first["rule"], text + ".", order,
                   start=first, newest=newest)
    balances = [f"{{end.{name}:n {noun}}}" for name, noun in (
        ("balance_msgs", "message"), ("balance_bytes", "byte")) if last[name] is not None]
    balance = f" (balance {' and '.join(balances)})" if balances else ""
    why = _ENDINGS.get(last["rule"], "the last reason to pause is gone").format(balance=balance)
    text = f"Connection {{end.cnx_id}} is read again after" \
        f" {{end.ts_mono_ns - start.ts_mono_ns:ns}}: "
    if last["rule"] == "connection_closed":
        text = "Connection {end.cnx_id} was paused for" \
            " {end.ts_mono_ns - start.ts_mono_ns:ns}: "
    text += why
    if last["pause_observed_ns"] is not None:
        text += "; the broker itself paused it for {end.pause_observed_ns:ns}"
    return say(last["ts_wall_ms"], last["rule"], text + ".", order, end=last, start=first)
