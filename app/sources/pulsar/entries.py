"""Entries of a Pulsar partition one by one, including those of messages in chunks.

Pulsar's client joins chunks before an application sees them, and shows nothing of a message whose
chunks are incomplete. Entries that it leaves out of a range are therefore requested from a broker's
admin interface, which returns an entry as it is stored, with its metadata as headers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from app.config.pulsar_admin import PulsarAdminSettings
from app.errors import UserError
from app.sources.polling import Unanswered
from app.sources.pulsar.admin_client import AdminClient, NotThere, Session, topic_path
from app.sources.pulsar.message_positions import Position
from app.sources.pulsar.position_range import FoundMessage, Range, read_once
from app.sources.pulsar.topic_client import Options

CHUNKED = ";"
"""Separator, in the text of a message id, between the ids of the first and the last chunk."""
SILENCE_S = 2.0
"""A range without a further message for this time ends in chunks."""
HEADER = "X-Pulsar-"
_sessions: dict[tuple[tuple[str, str], ...], Session] = {}


@dataclass(slots=True)
class Entry:
    """An entry: a message, a batch of them, or a chunk of one."""

    ledger: int
    entry: int
    publish_ms: int | None
    producer_name: str | None
    size: int = 0
    """Bytes of payloads and keys."""
    messages: int = 0
    payload: bytes | None = None
    """None for a batch."""
    properties: Mapping[str, str] = field(default_factory=dict)
    sequence_id: str | None = None
    """As all that follow: a text of the interface, which the contract makes a number of."""
    uuid: str | None = None
    chunk_id: str | None = None
    num_chunks: str | None = None
    total_chunk_bytes: str | None = None

    @classmethod
    def of(cls, found: FoundMessage) -> Entry:
        """The entry whose first message this is."""
        message = found.message
        entry = cls(
            found.ledger,
            found.entry,
            message.publish_timestamp(),
            message.producer_name() or None,
            properties=message.properties(),
        )
        entry.add(found)
        return entry

    def add(self, found: FoundMessage) -> None:
        """Add a message to the entry."""
        value = found.message.data()
        self.size += len(value) + len(found.message.partition_key().encode())
        self.messages += 1
        self.payload = value if found.batch_index < 0 else None


def entries(options: Options, range_: Range) -> Iterator[Entry]:
    """The entries of a range in their order, each once."""
    begin, end = Position.of(range_.begin), Position.of(range_.end)
    last, held, complete = begin.place, None, False
    for found in read_once(options, range_, begin, SILENCE_S):
        if found is None:
            complete = True
            break
        place = found.ledger, found.entry
        if held is not None and place == last:
            held.add(found)
            continue
        if held is not None:
            yield held
        first = last[1] + 1
        if last[0] != found.ledger:
            yield from rest_of_ledger(options, range_.topic, *last)
            first = 0
        yield from stored(options, range_.topic, found.ledger, range(first, found.entry))
        last, held = place, None
        if CHUNKED in str(found.message.message_id()):
            yield from stored(options, range_.topic, found.ledger, [found.entry])
        else:
            held = Entry.of(found)
    if held is not None:
        yield held
    # Behind the last message of a range there may be chunks of one that is not complete in it.
    if last[0] != end.ledger:
        yield from rest_of_ledger(options, range_.topic, *last)
        last = end.ledger, -1
    if complete:
        yield from rest_of_ledger(options, range_.topic, *last, end.entry)
    else:
        yield from stored(options, range_.topic, end.ledger, range(last[1] + 1, end.entry + 1))


def stored(options: Options, topic: str, ledger: int, numbers: Iterable[int]) -> Iterator[Entry]:
    """Chunks among the entries of a ledger, as a broker stores them. Other entries that the client
    does not show (markers of transactions) are left out.
    """
    for number in numbers:
        found = _stored(options, topic, ledger, number)
        if found is not None and found.num_chunks is not None:
            yield found


def rest_of_ledger(
    options: Options, topic: str, ledger: int, entry: int, last: int = sys.maxsize
) -> Iterator[Entry]:
    """Chunks in a ledger after an entry, up to its end or `last`. None without an admin interface:
    a message whose last chunk comes later then requires one.
    """
    if ledger < 0 or "adminUrl" not in options:
        return
    for number in range(entry + 1, last + 1):
        found = _stored(options, topic, ledger, number)
        if found is None:
            return
        if found.num_chunks is not None:
            yield found


def _stored(options: Options, topic: str, ledger: int, number: int) -> Entry | None:
    path = f"{topic_path(topic)}/ledger/{ledger}/entry/{number}"
    try:
        body, headers = _session(options, topic, ledger, number).content(path)
    except NotThere:
        return None
    except Unanswered as error:
        raise UserError(
            f"source.options.adminUrl: {options['adminUrl']} does not answer with an entry: "
            f"{error}\nchunks of a compressed message cannot be read one by one: let producers of "
            "large messages either split or compress"
        ) from None
    known = {key.lower(): value for key, value in headers.items()}

    def text(name: str) -> str | None:
        return known.get((HEADER + name).lower())

    return Entry(
        ledger,
        number,
        _ms(text("publish-time")),
        text("producer-name"),
        len(body),
        1,
        body,
        sequence_id=text("sequence-id"),
        uuid=text("uuid"),
        chunk_id=text("chunk-id"),
        num_chunks=text("num-chunks-from-msg"),
        total_chunk_bytes=text("total-chunk-msg-size"),
    )


def _ms(text: str | None) -> int | None:
    """The time (ms since the epoch) in a header; None where there is none."""
    try:
        return round(datetime.fromisoformat(text or "").timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _session(options: Options, topic: str, ledger: int, number: int) -> Session:
    """The connection of this process to the admin interface."""
    if "adminUrl" not in options:
        raise UserError(
            f"source.options.adminUrl: is missing, and {topic} has messages in chunks (entry "
            f"{ledger}:{number})\nonly a broker's admin interface shows chunks: "
            "adminUrl: http://host:8080"
        )
    key = tuple(sorted(options.items()))
    if key not in _sessions:
        _sessions[key] = AdminClient(admin_settings(options, topic)).session()
    return _sessions[key]


def admin_settings(options: Options, topic: str) -> PulsarAdminSettings:
    """The admin interface by the options of a source."""
    return PulsarAdminSettings.model_validate(
        {
            "cluster": "pulsar",
            "url": options["adminUrl"],
            "topics": [topic],
            "token": options.get("token"),
            "ca_file": options.get("tlsTrustCertsFilePath"),
        }
    )
