"""What the summary of a report says of large messages: how many arrived, and why others did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from app.show.report.model import Action, Finding, JobFindings, Urgency
from app.show.report.phrases import NAMED, Row, short, was
from app.terminal.counts import counted, gone_chunks

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

Message = tuple[str, str, str, str]
"""Cluster, topic, subscription, uuid: a large message as one subscription has it."""
MESSAGE_COLUMNS = ("cluster", "topic", "subscription", "uuid")
CHUNK_EVENT_COLUMNS = (*MESSAGE_COLUMNS, "consumer", "outcome", "acks")
INCOMPLETE_COLUMNS = (
    *MESSAGE_COLUMNS,
    "producer_name",
    "window_start_ms",
    "state",
    "stalled_at",
    "first_position",
    "missing_chunks",
)
EXPIRED = frozenset({"EXPIRED"})
SHARED_ORPHAN = "SHARED_ORPHAN"
"""Loses its message only where the broker acknowledges the chunk."""
LOST = frozenset({"GAP", "NO_FIRST_CHUNK", SHARED_ORPHAN})
GIVEN_UP = frozenset(
    {
        "EVICTED",
        "ORPHANED",
        "GIVEN_UP_COUNT",
        "GIVEN_UP_OVERFLOW",
        "COUNT_EXCEPTION",
        "OVERFLOW_EXCEPTION",
    }
)
"""Outcomes that end a large message, by reason; a message may have several."""
STALLED = "stalled"
MOST_ROWS = 10_000
RUNBOOK = "app/jobs/chunks/runbooks/chunk-messages-lost.md"
MESSAGES = ("large message", "large messages")
DELIVERIES = (
    "delivery of a large message to a subscription",
    "deliveries of large messages to subscriptions",
)


def large_message_finding(
    messages: Iterable[Row], events: Iterable[Row], incomplete: Iterable[Row]
) -> Finding | None:
    """The number of complete large messages, and why the others are not, from rows of
    chunk_messages, chunk_events and incomplete_messages; None without any."""
    events, incomplete = list(events), list(incomplete)
    fates = _fates(messages, events, incomplete)
    known = set().union(*fates.values())
    if not known:
        return None
    producers = {_message(r): r["producer_name"] for r in incomplete}
    consumers = {_message(r): r["consumer"] for r in events if r["outcome"] in LOST}
    heads = _stalled_heads(incomplete, fates)
    parts = [
        _part(fates["expired"], "never got {its} last chunk", "producer", producers),
        _part(fates["lost"], "{was} given up because of a lost chunk", "consumer", consumers),
        _part(fates["given_up"], "{was} given up for other reasons"),
        _part(fates["waiting"], "{waits} for a chunk", "producer", producers),
        *_stalled_parts(heads),
    ]
    # A message counts once per subscription; with one of them each, these are the messages.
    once = len({(m[0], m[1], m[3]) for m in known}) == len(known)
    complete = len(fates["complete"])
    arrived = "all" if complete == len(known) > 1 else f"{complete:,}"
    result = ", ".join(filter(None, parts))
    count = counted(len(known), *(MESSAGES if once else DELIVERIES))
    return Finding(
        f"Of {count} {arrived} arrived complete{'; ' if result else ''}{result}.",
        _actions(fates, producers, consumers, heads),
    )


def partial_findings(rows: Sequence[Row]) -> list[Finding]:
    """Large messages that a redelivery cannot complete, from rows of `partial-acks`."""
    if not rows:
        return []
    newest, one = rows[0], len(rows) == 1
    which = f"{counted(len(rows), *MESSAGES)} {'is' if one else 'are'} acknowledged in part"
    return [
        Finding(
            f"{which}{_named('consumer', [row['consumer'] for row in rows])}: after a redelivery the"
            f" rest of {'it' if one else 'them'} makes no message.",
            [
                Action(
                    f"Let {newest['consumer'] or 'its consumer'} of {short(newest['topic'])}"
                    " acknowledge large messages whole, by the id that its client gives",
                    f"{which}, the newest at {newest['first_unacknowledged']}",
                    Urgency.LOSS,
                    cluster=newest["cluster"],
                    topic=newest["topic"],
                    runbook=RUNBOOK,
                )
            ],
        )
    ]


def _fates(
    messages: Iterable[Row], events: list[Row], incomplete: list[Row]
) -> dict[str, set[Message]]:
    """The outcome of each large message in each subscription; the first that applies."""
    fates = {"complete": {_message(row) for row in messages}}
    for name, outcomes in (("expired", EXPIRED), ("given_up", GIVEN_UP), ("lost", LOST)):
        fates[name] = {
            _message(r)
            for r in events
            if r["outcome"] in outcomes and (r["outcome"] != SHARED_ORPHAN or r["acks"])
        }
    ends = sorted((row["window_start_ms"], row["cluster"]) for row in incomplete)
    newest = {cluster: start_ms for start_ms, cluster in ends}
    for name, state in (("stalled", STALLED), ("waiting", "assembling")):
        fates[name] = {
            _message(r)
            for r in incomplete
            if r["window_start_ms"] == newest[r["cluster"]] and r["state"] == state
        }
    known: set[Message] = set()
    for name, own in fates.items():
        fates[name] = own - known
        known |= own
    return fates


def _stalled_heads(
    incomplete: list[Row], fates: Mapping[str, set[Message]]
) -> list[tuple[Row, int]]:
    """The messages at which subscriptions are stalled, and how many wait there, the most first."""
    stalled = fates["stalled"]
    rows = {_message(r): r for r in incomplete if r["state"] == STALLED}
    heads = {m[:3]: rows[m] for m in stalled if rows[m]["first_position"] == rows[m]["stalled_at"]}
    counts = Counter(m[:3] for m in sorted(stalled))
    return [(heads[where], n) for where, n in counts.most_common(NAMED) if where in heads]


def _stalled_parts(heads: Iterable[tuple[Row, int]]) -> list[str]:
    return [
        f"{number:,} {'is' if number == 1 else 'are'} stalled behind {head['stalled_at']},"
        f" whose {gone_chunks(head['missing_chunks'])} (subscription {head['subscription']})"
        for head, number in heads
    ]


def _actions(
    fates: Mapping[str, set[Message]],
    producers: Mapping[Message, str | None],
    consumers: Mapping[Message, str | None],
    heads: Iterable[tuple[Row, int]],
) -> list[Action]:
    """What to do about stalled subscriptions, lost messages and those that were never finished."""
    result = [
        Action(
            f"Skip the chunk at {head['stalled_at']} of {short(head['topic'])} for subscription "
            f"{head['subscription']}",
            f"{number:,} large {'message is' if number == 1 else 'messages are'} stalled behind it,"
            f" and its {gone_chunks(head['missing_chunks'])}",
            Urgency.LOSS,
            lasts=True,
            cluster=head["cluster"],
            topic=head["topic"],
            runbook="app/jobs/chunks/runbooks/chunk-message-stuck.md",
        )
        for head, number in heads
    ]
    for fate, remedy, reason, noun, names in (
        (
            "lost",
            "Raise maxPendingChunkedMessage of",
            "{was} given up because of a lost chunk",
            "consumer",
            consumers,
        ),
        (
            "expired",
            "Repair and send again what is unfinished of",
            "never got the last chunk",
            "producer",
            producers,
        ),
    ):
        messages = fates[fate]
        if messages:
            one = min(messages)
            who = _named(noun, [names.get(m) for m in messages]).strip(" ()") or f"its {noun}"
            reason = reason.format(was=was(len(messages)))
            result.append(
                Action(
                    f"{remedy} {who} of {short(one[1])}",
                    f"{counted(len(messages), *MESSAGES)} {reason}",
                    Urgency.LOSS,
                    cluster=one[0],
                    topic=one[1],
                    runbook=RUNBOOK,
                )
            )
    return result


def _message(row: Row) -> Message:
    return row["cluster"], row["topic"], row["subscription"], row["uuid"]


def _part(
    own: set[Message], words: str, noun: str = "", names: Mapping[Message, str | None] | None = None
) -> str:
    """A number of messages with their outcome and who was involved; nothing without any."""
    if not own:
        return ""
    one = len(own) == 1
    result = words.format(
        its="its" if one else "their", was=was(len(own)), waits="waits" if one else "wait"
    )
    return f"{len(own):,} {result}" + _named(noun, [(names or {}).get(m) for m in own])


def _named(noun: str, names: list[str | None]) -> str:
    """The names that occur most often, in brackets."""
    found = [name for name, _ in Counter(sorted(n for n in names if n)).most_common()]
    if not found:
        return ""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f" ({noun}{'' if len(found) == 1 else 's'} {', '.join(found[:NAMED])}{more})"


def _findings(reader: ReportReader) -> list[Finding]:
    messages = reader.columns("chunk_messages", MESSAGE_COLUMNS)
    finding = large_message_finding(
        messages,
        reader.columns("chunk_events", CHUNK_EVENT_COLUMNS),
        reader.columns("incomplete_messages", INCOMPLETE_COLUMNS),
    )
    return [
        *([] if finding is None else [finding]),
        *partial_findings(messages and reader.ask("partial-acks", MOST_ROWS)),
    ]


FINDINGS = (JobFindings(30, _findings),)
