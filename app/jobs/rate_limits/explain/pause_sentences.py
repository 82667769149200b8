"""Sentences about pauses of connections: the limit, the victims, the end."""

from __future__ import annotations

from app.explain.ask import Ask, Configured
from app.explain.reader import Reader
from app.explain.sentence import Row, Sentence, compose
from app.jobs.rate_limits.explain.limits import Policies
from app.jobs.rate_limits.explain.pause_start import start
from app.jobs.rate_limits.explain.pauses import Pause, Windows, pauses_of, windows_of
from state.rate_limits.declaration import NAME

LONGEST_STATISTICS_MS = 86_400_000
"""A window of statistics that contains the moment ends within this time."""
MANY = 3
"""More pauses of a connection than these are summed up, and one of them is explained."""
CONNECTION = ("cluster", "broker", "cnx_id")
NAMED = 3
"""The most victims that one sentence names."""
ENDINGS = {
    "released": "the limiter is back at its target{balance}",
    "limit_removed": "the limit was removed",
    "in_flight_half": "requests in flight have fallen to half of the limit",
    "buffer_half": "buffered bytes have fallen to half of the share",
    "connection_closed": "the connection was closed, which removes its marks",
    "observed_resume": "the broker was seen to read it again",
    "gap": "then records of {broker} are missing, and how long the pause lasted is not known",
}
"""Why a pause ended, by rule."""


def sentences(reader: Reader, ask: Ask, configured: Configured) -> list[Sentence]:
    """The pauses of the topic or connection around the moment."""
    policies = Policies(
        reader,
        ask.hi_ms + LONGEST_STATISTICS_MS,
        configured.policies,
        configured.params_hash(NAME),
    )
    pauses = pauses_of(reader, ask) if reader.has("throttle_events") else []
    windows = windows_of(reader, pauses)
    result: list[Sentence] = []
    of_connection: dict[tuple[str, ...], list[Pause]] = {}
    for pause in pauses:
        key = tuple(pause.first[name] for name in CONNECTION)
        of_connection.setdefault(key, []).append(pause)
    many = [every for every in of_connection.values() if len(every) > MANY]
    result += [_sums(reader, ask, every[0]) for every in many]
    summed = [pause for every in many for pause in every[1:]]
    pauses = [pause for pause in pauses if pause not in summed]
    for number, pause in enumerate(pauses):
        result.append(start(reader, policies, windows, pause, (number, 0)))
        result += _victims(ask, windows, pause, (number, 1))
        result += _further(pause, (number, 2))
        result.append(_end(reader, pause, (number, 3)))
    return result


# The limit that began a pause: a topic's own, or one that topics share.
_WHOSE = (
    "coalesce(t.culprit_topics[1], nullif(trim(t.shared_limits[1]), 'unknown'),"
    " 'a limit that is not known')"
)
_SUMS = (
    "count(*) AS pauses,"
    " coalesce(sum(CAST(t.end_ns AS HUGEINT) - t.start_ns), 0)::BIGINT AS paused_ns,"
    " coalesce(max(t.end_ns - t.start_ns), 0)::BIGINT AS longest_ns,"
    f" min(t.start_ms) AS first_ms, mode({_WHOSE}) AS whose"
)


def _sums(reader: Reader, ask: Ask, one: Pause) -> Sentence:
    """All pauses of a connection in the requested time, in one sentence."""
    own = {name: one.first[name] for name in CONNECTION}
    where = " AND ".join(f"t.{name} = ${name}" for name in own)
    found = reader.summary(
        "throttle_intervals",
        _SUMS,
        f"{where} AND t.start_ms >= $lo AND t.start_ms < $hi",
        {**own, "lo": ask.lo_ms, "hi": ask.hi_ms},
    )
    text = (
        "Connection {first.cnx_id} had {sums.pauses:n pause} in this time,"
        " {sums.paused_ns:ns} in all and {sums.longest_ns:ns} the longest, most often for"
        " {sums.whose}; one of them is explained here"
    )
    first_ms = ask.lo_ms if found["first_ms"] is None else found["first_ms"]
    return compose(first_ms, one.first["rule"], text + ".", (-1, 0), first=one.first, sums=found)


def _victims(ask: Ask, windows: Windows, pause: Pause, order: tuple[int, int]) -> list[Sentence]:
    """The victims: topics that were paused without using up their own limit, and their use."""
    first = pause.first
    culprit = first["culprit_topic"] if first["limiter"] == "topic" else None
    others = {first["topic"], *(first["collateral_topics"] or ())} - {culprit, None}
    if not others:
        return []
    rows: dict[str, Row] = {"pause": first}
    ranked = []
    for topic in others:
        window = next(iter(windows.at(first, topic=topic)), None)
        ranked.append((topic not in ask.names, -(_share(window) or 0), topic, window))
    ranked.sort(key=lambda found: found[:3])
    parts = []
    for number, (_, _, topic, window) in enumerate(ranked[:NAMED]):
        name = f"victim_{'abc'[number]}"
        if window is None:
            parts.append(topic.replace("{", "{{").replace("}", "}}"))
            continue
        rows[name] = window
        share = _share(window)
        usage = "it has no limit"
        if share is not None:
            usage = f"it used {{{_expression(name, window)}:pct}} of its limit"
        within = share is not None and share <= 1
        parts.append(f"{{{name}.topic}} " + (f"although {usage}" if within else f"({usage})"))
    more = len(others) - len(parts)
    if more:
        named = len(first["collateral_topics"]) - more
        parts.append(f"{{len(pause.collateral_topics) - {named}:n other topic}}")
    text = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    return [
        compose(
            first["ts_wall_ms"],
            first["rule"],
            f"Paused with connection {{pause.cnx_id}}: {text}.",
            order,
            **rows,
        )
    ]


def _rates(window: Row) -> list[tuple[str, str]]:
    """The counters of a topic that have a limit, with that limit."""
    both = (("messages", "limit_msgs"), ("bytes", "limit_bytes"))
    return [(name, limit) for name, limit in both if window[limit]]


def _share(window: Row | None) -> float | None:
    """The larger share of its limits that a topic used in a window; None without limits."""
    if window is None or not _rates(window):
        return None
    return max(
        float(window[name] * 1000 / window["window_ms"] / window[limit])
        for name, limit in _rates(window)
    )


def _expression(name: str, window: Row) -> str:
    """The expression of `_share` over the row `name`."""
    shares = [
        f"{name}.{used} * 1000 / {name}.window_ms / {name}.{limit}"
        for used, limit in _rates(window)
    ]
    return shares[0] if len(shares) == 1 else f"max({', '.join(shares)})"


def _further(pause: Pause, order: tuple[int, int]) -> list[Sentence]:
    """Further marks of a connection that is paused already."""
    if pause.next is None:
        return []
    text = (
        "While connection {next.cnx_id} was paused, {further.marks:n more mark} followed, the"
        " first by {next.topic}: frames already received are still charged"
    )
    if pause.further["most_waiting"]:
        text += "; at most {further.most_waiting:n producer} waited"
    lowest = [
        f"{{further.{name}:n {noun}}}"
        for name, noun in (("least_msgs", "message"), ("least_bytes", "byte"))
        if pause.further[name] is not None
    ]
    if lowest:
        text += f"; lowest balance {' and '.join(lowest)}"
    return [
        compose(
            pause.next["ts_wall_ms"],
            pause.next["rule"],
            text + ".",
            order,
            next=pause.next,
            further=pause.further,
        )
    ]


def _end(reader: Reader, pause: Pause, order: tuple[int, int]) -> Sentence:
    """How the pause ended, or that it has not."""
    first, last = pause.first, pause.last
    if last is None:
        newest = reader.summary(
            "throttle_events",
            "max(t.ts_wall_ms) AS newest_ms",
            "t.cluster = $cluster AND t.broker = $broker",
            {"cluster": first["cluster"], "broker": first["broker"]},
        )
        text = (
            "No row ends the pause of connection {start.cnx_id}: it lasts at the newest row of"
            " {start.broker}, of {newest.newest_ms:clock}"
        )
        if first["pause_model_ns"] is not None:
            text += (
                "; by its first balance it would end at"
                " {start.ts_wall_ms + start.pause_model_ns / 1000000:clock} at the earliest"
            )
        return compose(
            newest["newest_ms"], first["rule"], text + ".", order, start=first, newest=newest
        )
    if last["rule"] == "gap":
        text = (
            "Connection {end.cnx_id} was seen paused for"
            " {end.seen_until_ns - start.ts_mono_ns:ns}: "
            + ENDINGS["gap"].format(broker="{end.broker}")
        )
        return compose(last["ts_wall_ms"], last["rule"], text + ".", order, end=last, start=first)
    balances = [
        f"{{end.{name}:n {noun}}}"
        for name, noun in (("balance_msgs", "message"), ("balance_bytes", "byte"))
        if last[name] is not None
    ]
    balance = f" (balance {' and '.join(balances)})" if balances else ""
    why = ENDINGS.get(last["rule"], "the last mark was removed").format(balance=balance)
    lasted = "{end.ts_mono_ns - start.ts_mono_ns:ns}"
    if last["ts_mono_ns"] < first["ts_mono_ns"]:  # the broker, and with it its clock, restarted
        lasted = "{end.ts_wall_ms - start.ts_wall_ms:ms}"
    closed = last["rule"] == "connection_closed"
    text = "Connection {end.cnx_id} " + ("was paused for" if closed else "is read again after")
    text += f" {lasted}: {why}"
    if last["pause_observed_ns"] is not None:
        text += "; the broker itself paused it for {end.pause_observed_ns:ns}"
    return compose(last["ts_wall_ms"], last["rule"], text + ".", order, end=last, start=first)
