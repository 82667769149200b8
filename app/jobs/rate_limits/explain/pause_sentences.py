"""Sentences about pauses of connections: the limit, the victims, the end."""

from __future__ import annotations

from app.jobs.rate_limits.explain.limits import DecidedPolicies
from app.jobs.rate_limits.explain.pause_start import start
from app.jobs.rate_limits.explain.pauses import OVERLAPS, Pause, Windows, pauses_of, windows_of
from app.jobs.rate_limits.explain.windows import rates, share
from app.show.explain.ask import Ask, ConfiguredPolicies
from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Draft, Row, Sentence
from app.terminal.counts import all_of
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


def sentences(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
    """The pauses of the topic or connection around the moment."""
    policies = DecidedPolicies(
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


_WHOSE = (
    "CASE t.limiter WHEN 'topic' THEN t.trigger_topic WHEN 'unknown' THEN 'a limit that is not known'"
    " ELSE concat(t.limiter, ' ', t.limiter_name) END"
)
_SUMS = (
    "count(*) AS pauses, coalesce(sum(t.paused_ns), 0)::BIGINT AS paused_ns,"
    " coalesce(max(t.paused_ns), 0)::BIGINT AS longest_ns,"
    f" min(t.start_ms) AS first_ms, mode({_WHOSE}) AS whose"
)


def _sums(reader: SnapshotReader, ask: Ask, one: Pause) -> Sentence:
    """All pauses of a connection in the requested time, in one sentence."""
    own = {name: one.first[name] for name in CONNECTION}
    where = " AND ".join(f"t.{name} = ${name}" for name in own)
    found = reader.summary(
        "throttle_intervals",
        _SUMS,
        f"{where} AND {OVERLAPS.format('t')}",
        {**own, "lo": ask.lo_ms, "hi": ask.hi_ms},
    )
    draft = Draft()
    first, sums = draft.quote("first", one.first), draft.quote("sums", found)
    text = (
        f"Connection {first.cnx_id} had {sums.pauses:n pause} in this time,"
        f" {sums.paused_ns:ns} in all and {sums.longest_ns:ns} the longest, most often for"
        f" {sums.whose}; one of them is explained here"
    )
    return draft.sentence(text, (-1, 0), found["first_ms"], first["rule"])


def _victims(ask: Ask, windows: Windows, pause: Pause, order: tuple[int, int]) -> list[Sentence]:
    """The victims: topics that were paused without using up their own limit, and their use."""
    first = pause.first
    culprit = first["culprit_topic"] if first["limiter"] == "topic" else None
    others = {*pause.topics} - {culprit}
    if not others:
        return []
    draft = Draft()
    paused, ranked = draft.quote("pause", first), []
    for topic in others:
        window = next(iter(windows.at(first, topic=topic)), None)
        ranked.append((topic not in ask.names, -(_share(window) or 0), topic, window))
    ranked.sort(key=lambda found: found[:3])
    parts = []
    for number, (_, _, topic, window) in enumerate(ranked[:NAMED]):
        if window is None:
            parts.append(topic)
            continue
        victim = draft.quote(f"victim_{'abc'[number]}", window)
        used = _share(window)
        if used is None:
            parts.append(f"{topic} (it has no limit)")
            continue
        usage = f"it used {victim.derived('share', used):pct} of its limit"
        parts.append(f"{topic} although {usage}" if used <= 1 else f"{topic} ({usage})")
    more = len(others) - len(parts)
    if more:
        parts.append(f"{paused.derived('more_topics', more):n other topic}")
    text = all_of(parts)
    return [draft.sentence(f"Paused with connection {paused.cnx_id}: {text}", order)]


def _share(window: Row | None) -> float | None:
    """The larger share of its limits that a topic used in a window; None without limits."""
    if window is None:
        return None
    return max((share(window, *counter[:2]) for counter in rates(window)), default=None)


def _further(pause: Pause, order: tuple[int, int]) -> list[Sentence]:
    """Further marks of a connection that is paused already."""
    if pause.next is None:
        return []
    draft = Draft()
    mark, further = draft.quote("next", pause.next), draft.quote("further", pause.further)
    text = (
        f"While connection {mark.cnx_id} was paused, {further.marks:n more mark} followed, the"
        f" first by {mark.topic}: frames already received are still charged"
    )
    if further["most_waiting"]:
        text += f"; at most {further.most_waiting:n producer} waited"
    lowest = further.amounts("least_msgs", "least_bytes")
    if lowest:
        text += f"; lowest balance {lowest}"
    return [draft.sentence(text, order)]


def _end(reader: SnapshotReader, pause: Pause, order: tuple[int, int]) -> Sentence:
    """How the pause ended, or that it has not."""
    first, last = pause.first, pause.last
    draft = Draft()
    if last is None:
        newest_row = reader.summary(
            "throttle_events",
            "max(t.ts_wall_ms) AS newest_ms",
            "t.cluster = $cluster AND t.broker = $broker",
            {"cluster": first["cluster"], "broker": first["broker"]},
        )
        start, newest = draft.quote("start", first), draft.quote("newest", newest_row)
        text = (
            f"No row ends the pause of connection {start.cnx_id}: it lasts at the newest row of"
            f" {start.broker}, of {newest.newest_ms:clock}"
        )
        if first["pause_model_ns"] is not None:
            due_ms = first["ts_wall_ms"] + first["pause_model_ns"] / 1000000
            text += (
                "; by its first balance it would end at"
                f" {start.derived('due_ms', due_ms):clock} at the earliest"
            )
        return draft.sentence(text, order, newest["newest_ms"])
    end = draft.quote("end", last)
    draft.quote("start", first)
    if last["rule"] == "gap":
        why = ENDINGS["gap"].format(broker=end.broker)
        return draft.sentence(
            f"Connection {end.cnx_id} was seen paused for {pause.lasted(end)}: {why}", order
        )
    balance = end.amounts("balance_msgs", "balance_bytes")
    why = ENDINGS.get(last["rule"], "the last mark was removed")
    why = why.format(balance=f" (balance {balance})" if balance else "")
    paused = "was paused for" if last["rule"] == "connection_closed" else "is read again after"
    text = f"Connection {end.cnx_id} {paused} {pause.lasted(end)}: {why}"
    if last["pause_observed_ns"] is not None:
        text += f"; the broker itself paused it for {end.pause_observed_ns:ns}"
    return draft.sentence(text, order)
