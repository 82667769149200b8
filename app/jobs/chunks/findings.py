"""What the summary of a report says of large messages: how many arrived, and why others did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from app.jobs.chunks.views import GIVEN_UP
from app.show.alerts.rule_files import runbook_of
from app.show.report.model import Action, Finding, JobFindings, Urgency
from app.terminal.counts import counted, gone_chunks
from app.terminal.phrases import NAMED, Row, short, was

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

Message = tuple[str, str, str, str]
"""Cluster, topic, subscription, uuid: a large message as one subscription has it."""
MESSAGE_COLUMNS = ("cluster", "topic", "subscription", "uuid")
# Who has sent a lost message is known from when it was incomplete.
LOST = """
SELECT g.*, p.producer_name FROM given_up_messages AS g LEFT JOIN (
  SELECT cluster, topic, subscription, uuid, any_value(producer_name) AS producer_name
  FROM incomplete_messages GROUP BY ALL
) AS p USING (cluster, topic, subscription, uuid) WHERE g.fate = 'lost'
"""


class Remedy(NamedTuple):
    """What cures an outcome."""

    outcomes: tuple[str, ...]
    do: str
    """With the name of whom it is about, the topic and the subscription."""
    why: str
    who: str = "consumer"


REMEDIES = (
    Remedy(
        ("GAP", "NO_FIRST_CHUNK"),
        "Send again what {who} of {topic} gave up",
        "{was} given up because of a lost chunk",
    ),
    Remedy(
        ("EXPIRED",),
        "Repair and send again what is unfinished of {who} of {topic}",
        "never got the last chunk",
        "producer",
    ),
    Remedy(
        ("EVICTED",),
        "Raise maxPendingChunkedMessage of {who} of {topic}",
        "made room for others",
    ),
    Remedy(
        ("GIVEN_UP_COUNT", "GIVEN_UP_OVERFLOW", "COUNT_EXCEPTION", "OVERFLOW_EXCEPTION"),
        "Repair the producers of large messages of {topic}: they declare a wrong size or number of chunks",
        "did not fit what the first chunk declares",
    ),
    Remedy(
        ("ORPHANED",),
        "Restart {who} of {topic}, so that chunks are delivered again",
        "{was} lost with a consumer or marker",
    ),
    Remedy(
        ("SHARED_ORPHAN",),
        "Read {topic} by a failover subscription in place of {subscription}",
        "came in chunks of which the first ones went to a consumer that has gone",
    ),
)
"""By outcome; the runbook has the same ones."""
STALLED = "stalled"
MOST_ROWS = 10_000
MESSAGES = ("large message", "large messages")
DELIVERIES = (
    "delivery of a large message to a subscription",
    "deliveries of large messages to subscriptions",
)


def large_message_finding(
    messages: Iterable[Row], lost: Sequence[Row], incomplete: Sequence[Row]
) -> Finding | None:
    """The number of complete large messages, and why the others are not, from rows of chunk_messages,
    of `LOST` and of incomplete_now; None without any."""
    fates = _fates(messages, lost, incomplete)
    known = set().union(*fates.values())
    if not known:
        return None
    producers = {_message(r): r["producer_name"] for r in (*lost, *incomplete)}
    consumers = {_message(r): r["consumer"] for r in lost}
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
        [*_stalled_actions(heads), *_lost_actions(lost)],
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
                    runbook=runbook_of("chunk-messages-lost"),
                )
            ],
        )
    ]


def _fates(
    messages: Iterable[Row], lost: Sequence[Row], incomplete: Sequence[Row]
) -> dict[str, set[Message]]:
    """What became of each large message in each subscription."""
    fates = {"complete": {_message(row) for row in messages}}
    for name in ("expired", "given_up", "lost"):
        fates[name] = {_message(r) for r in lost if GIVEN_UP[r["outcome"]] == name}
    for name, state in (("stalled", STALLED), ("waiting", "assembling")):
        fates[name] = {_message(r) for r in incomplete if r["state"] == state}
    known: set[Message] = set()
    for name, own in fates.items():
        fates[name] = own - known
        known |= own
    return fates


def _stalled_heads(
    incomplete: Sequence[Row], fates: Mapping[str, set[Message]]
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


def _stalled_actions(heads: Iterable[tuple[Row, int]]) -> list[Action]:
    return [
        Action(
            f"Skip the chunk at {head['stalled_at']} of {short(head['topic'])} for subscription "
            f"{head['subscription']}",
            f"{number:,} large {'message is' if number == 1 else 'messages are'} stalled behind it,"
            f" and its {gone_chunks(head['missing_chunks'])}",
            Urgency.LOSS,
            lasts=True,
            cluster=head["cluster"],
            topic=head["topic"],
            runbook=runbook_of("chunk-message-stuck"),
        )
        for head, number in heads
    ]


def _lost_actions(lost: Sequence[Row]) -> list[Action]:
    """What to do about lost messages, by what cures the outcome."""
    result = []
    for remedy in REMEDIES:
        rows = {_message(r): r for r in lost if r["outcome"] in remedy.outcomes}
        if rows:
            first = min(rows)
            column = "producer_name" if remedy.who == "producer" else "consumer"
            names = [row[column] for row in rows.values()]
            who = _named(remedy.who, names).strip(" ()") or f"its {remedy.who}"
            cluster, topic, subscription, _ = first
            result.append(
                Action(
                    remedy.do.format(who=who, topic=short(topic), subscription=subscription),
                    f"{counted(len(rows), *MESSAGES)} {remedy.why.format(was=was(len(rows)))}",
                    Urgency.LOSS,
                    cluster=cluster,
                    topic=topic,
                    runbook=runbook_of("chunk-messages-lost"),
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
        reader.rows(LOST),
        reader.rows("FROM incomplete_now"),
    )
    return [
        *([] if finding is None else [finding]),
        *partial_findings(messages and reader.ask("partial-acks", MOST_ROWS)),
    ]


FINDINGS = (JobFindings(30, _findings),)
