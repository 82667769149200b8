"""Events from words: bursts and rates of messages to a topic, new producer ids of a user, and
requests of a user's client."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.errors import UserError
from app.terminal.moments import read_duration_ms
from app.terminal.sizes import read_size
from state.engine.documents import full_topic_name
from state.events import KINDS

Event = dict[str, Any]
START_MS = 1_767_621_600_000
"""2026-01-05T14:00:00Z: where a case begins (ms since the epoch)."""
START_NS = 3_600_000_000_000
NS_PER_MS = 1_000_000
MOST = 1_000_000
"""Events of a line."""
FORMS = (
    "[at T:] N messages[/s] [of SIZE] to TOPIC [on CONNECTION] [for T]",
    "[at T:] N new producer ids[/s] of USER [for T]",
    "[at T:] N produce requests[/s] [of SIZE] by USER [with CLIENT] [for T], or fetch requests",
)
_AT = re.compile(r"at (\S+):\s+(.*)", re.DOTALL)
_MESSAGES = re.compile(
    r"(?P<count>\d+) messages?(?P<rate>/s)?(?: of (?P<size>\S+(?: [kMG]?B)?))? to (?P<topic>\S+)"
    r"(?: on (?P<connection>\S+))?(?: for (?P<length>.+))?"
)
_IDS = re.compile(
    r"(?P<count>\d+) new producer ids?(?P<rate>/s)? of (?P<user>\S+)(?: for (?P<length>.+))?"
)
_REQUESTS = re.compile(
    r"(?P<count>\d+) (?P<api>produce|fetch) requests?(?P<rate>/s)?"
    r"(?: of (?P<size>\S+(?: [kMG]?B)?))? by (?P<user>\S+)(?: with (?P<client>\S+))?"
    r"(?: for (?P<length>.+))?"
)
_NAMES = frozenset(kind.name for kind in KINDS)


def events_of(lines: object, where: str) -> list[Event]:
    """The events of a case, in order of time: words, or the columns of a record with the time `at`
    after the beginning of the case. UserError names the line."""
    if not isinstance(lines, list) or not lines:
        raise UserError(f"{where}: is not a list of events (allowed: {' or '.join(FORMS)})")
    numbers = iter(range(1, 10**9))
    found = [
        event
        for place, line in enumerate(lines)
        for event in _events(line, f"{where}[{place}]", numbers)
    ]
    found.sort(key=lambda event: event["ts_mono_ns"])
    for seq, event in enumerate(found):
        event["seq"] = seq
    return found


def _events(line: object, where: str, numbers: Iterator[int]) -> Iterator[Event]:
    if isinstance(line, Mapping):
        yield _record(line, where)
        return
    text = line if isinstance(line, str) else ""
    at = _AT.fullmatch(text.strip())
    begin_ms = 0 if at is None else read_duration_ms(at[1], f"{where}: at")
    words = text.strip() if at is None else at[2].strip()
    makers: tuple[tuple[re.Pattern[str], Callable[..., Iterator[Event]]], ...] = (
        (_MESSAGES, _publishes),
        (_IDS, _new_ids),
        (_REQUESTS, _requests),
    )
    for form, make in makers:
        said = form.fullmatch(words)
        if said is not None:
            times = _times(said, begin_ms * NS_PER_MS, where)
            yield from make(said, times, where, numbers)
            return
    raise UserError(f"{where}: {line!r} is not understood (allowed: {'; '.join(FORMS)})")


def _times(said: re.Match[str], begin_ns: int, where: str) -> list[int]:
    """When each of them comes, in ns after the beginning of the case."""
    count = int(said["count"])
    if not said["rate"]:
        if said["length"]:
            raise UserError(f"{where}: `for` goes with a rate, such as 5 messages/s")
        return [begin_ns + n for n in range(_bounded(count, where))]
    if not said["length"]:
        raise UserError(f"{where}: a rate needs `for` and a time, such as for 10s")
    length_ms = read_duration_ms(said["length"], f"{where}: for")
    total = _bounded(count * length_ms // 1000, where)
    return [begin_ns + n * 1_000_000_000 // count for n in range(total)]


def _bounded(count: int, where: str) -> int:
    if count > MOST:
        raise UserError(f"{where}: {count:,} events are too many (allowed: {MOST:,})")
    return count


def _publishes(
    said: re.Match[str], times: list[int], where: str, numbers: Iterator[int]
) -> Iterator[Event]:
    """A message each, and its entry a millisecond later."""
    size = _size(said, where)
    same = {
        "cnx_id": said["connection"] or "10.0.0.1:40000",
        "topic": full_topic_name(said["topic"]),
        "producer_id": 1,
        "producer_name": f"producer of {said['topic']}",
        "num_messages": 1,
        "entry_bytes": size,
    }
    for at_ns in times:
        entry = {"ledger_id": 1, "entry_id": next(numbers)}
        yield _at(at_ns, "publish", same)
        yield _at(at_ns + NS_PER_MS, "entry_added", {**same, **entry})


def _size(said: re.Match[str], where: str) -> int:
    size = 1000 if said["size"] is None else read_size(said["size"])
    if size is None:
        raise UserError(f"{where}: of {said['size']}: is not a size (allowed: 200B, 1kB, 2MB)")
    return size


def _requests(
    said: re.Match[str], times: list[int], where: str, numbers: Iterator[int]
) -> Iterator[Event]:
    """A request each; of a fetch the size is that of its answer."""
    same = {
        "source_feed": "kafka_logs",
        "principal": _principal(said["user"]),
        "client_id": said["client"],
        "api": said["api"].upper(),
        "charged_bytes": _size(said, where),
    }
    for at_ns in times:
        yield _at(at_ns, "client_request", same)


def _principal(user: str) -> str:
    return user if ":" in user else f"User:{user}"


def _new_ids(
    said: re.Match[str], times: list[int], where: str, numbers: Iterator[int]
) -> Iterator[Event]:
    """A batch each, with an id that was not there before."""
    user = said["user"]
    for at_ns in times:
        yield _at(
            at_ns,
            "produce_batch",
            {
                "source_feed": "kafka_dump_log",
                "principal": _principal(user),
                "client_id": user,
                "topic": f"{user}.events",
                "partition": 0,
                "producer_id": next(numbers),
            },
        )


def _at(at_ns: int, kind: str, columns: Mapping[str, Any]) -> Event:
    return {
        "event_type": kind,
        "source_feed": "test",
        "cluster": "test",
        "broker": "broker-1",
        "ts_mono_ns": START_NS + at_ns,
        "ts_wall_ms": START_MS + at_ns // NS_PER_MS,
        **columns,
    }


def _record(line: Mapping[str, Any], where: str) -> Event:
    """A record as it is written; the validation of records names its mistakes."""
    columns = {str(key): value for key, value in line.items() if key != "at"}
    kind = columns.pop("event_type", None)
    if kind not in _NAMES:
        raise UserError(
            f"{where}.event_type: {kind!r} is no kind of event (allowed: {', '.join(_NAMES)})"
        )
    at = line.get("at", "0s")
    at_ms = read_duration_ms(str(at), f"{where}.at")
    return _at(at_ms * NS_PER_MS, str(kind), columns)
