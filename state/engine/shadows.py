"""A job under its live policies, and beside them under others: shadows.

A shadow is a core of the same job with other documents. It gets the blobs that the live core gets,
and its rows go to tables of its own. Where its document of a name is another than the live
configuration's, it judges by its own: policies of the stream for this name are left out. A shard
that has no state of a shadow yet gives it that of the live core: until then both have judged alike.

The bytes of a shard are those of the live core. With shadows they are 4 bytes magic, 4 bytes
length of a JSON header, the header, and the states that it names, one after the other.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

import numpy as np
import pyarrow as pa

from state.engine.blobs import Blob
from state.engine.documents import Configured, Source, Version, parsed, source_of
from state.engine.globs import known_matching
from state.engine.job import Job, Step
from state.engine.reach import Reach
from state.engine.table import WHOSE
from state.policies import parse_document

MAGIC = b"WEIS"
Life = tuple[str, int]
"""The name of a shadow, and the batch that it began with: a name may begin anew."""
States = dict[Life, bytes]


Holds = Callable[[Source, int], bool]
"""Whether a document of the stream of a source and a wall time (ms) holds."""


@dataclass
class Shadow:
    """Other policies for a job."""

    life: Life
    core: Job
    documents: Configured = field(default_factory=Configured)
    """Those that the core was made with, and the versions that it follows."""

    def follow(self, versions: Iterable[Version]) -> None:
        """See `state.engine.job`."""
        self.documents = self.documents.followed_by(versions)
        self.core.follow(self.documents.versions)


class WithShadows:
    """A job with any number of shadows; as a `Job` it is the live one."""

    def __init__(
        self,
        live: Job,
        tables: Mapping[str, str],
        shadows: Sequence[Shadow] = (),
        documents: Configured | None = None,
    ) -> None:
        """`tables`: by table of the job the one that has its rows of shadows; `documents` are those of
        the live core."""
        self.name = live.name
        self._live, self._tables, self._shadows = live, tables, shadows
        self._documents = documents or Configured()

    def step(self, state: bytes | None, blobs: Sequence[bytes], reach: Reach) -> Step:
        """See `state.engine.job`; rows of shadows have the column `policy`."""
        live, states = split(state)
        answer = self._live.step(live, blobs, reach)
        if not self._shadows:
            return answer
        found: States = {}
        rows: dict[str, list[pa.Table]] = {}
        wakes = [] if answer.wake_at_ms is None else [answer.wake_at_ms]
        for shadow in self._shadows:
            holds = cache(partial(_stream_holds, shadow.documents, self._documents))
            own = [_without(blob, holds) for blob in blobs]
            one = shadow.core.step(states.get(shadow.life, live), own, reach)
            found[shadow.life] = one.state
            wakes += [] if one.wake_at_ms is None else [one.wake_at_ms]
            for name, table in one.tables.items():
                if name in self._tables:
                    whose = pa.repeat(pa.scalar(shadow.life[0]), len(table))
                    rows.setdefault(self._tables[name], []).append(
                        table.append_column(WHOSE.name, whose)
                    )
        return replace(
            answer,
            state=united(answer.state, found),
            wake_at_ms=min(wakes, default=None),
            tables={**answer.tables, **{name: pa.concat_tables(t) for name, t in rows.items()}},
        )

    def follow(self, versions: Iterable[Version]) -> None:
        """See `state.engine.job`; shadows have versions of their own."""
        self._documents = self._documents.followed_by(versions)
        self._live.follow(self._documents.versions)


def _without(blob: bytes, holds: Callable[[], Holds]) -> bytes:
    """A blob without the policies of the stream that do not hold."""
    records = Blob(blob)
    if "policy_json" not in records.columns():
        return blob
    policies, times = records.values(("policy_json", "ts_wall_ms"))
    places = np.flatnonzero(policies >= 0)
    if not len(places):
        return blob
    texts, kept = records.texts(), np.ones(records.length, bool)
    for place in places:
        document, _ = parse_document(texts[int(policies[place])].as_py())
        kept[place] = document is None or holds()(source_of(document), int(times[place]))
    return blob if kept.all() else records.filtered(kept)


def _stream_holds(own: Configured, live: Configured) -> Holds:
    """A document holds unless the shadow has one of its name, or a pattern of it, that the live
    configuration does not have at its time."""
    begins = sorted({v.since_ms for configured in (own, live) for v in configured.versions})
    others = [_others(own, live, since_ms) for since_ms in (None, *begins)]

    def holds(source: Source, wall_ms: int) -> bool:
        found = others[bisect_right(begins, wall_ms)]
        return source not in found and not known_matching(found, *source)

    return holds


def _others(own: Configured, live: Configured, wall_ms: int | None) -> frozenset[Source]:
    """What the documents of a shadow are about that the live configuration does not have."""
    (mine, theirs) = (_at(configured, wall_ms) for configured in (own, live))
    return frozenset(s for s, text in mine.items() if text is not None and text != theirs.get(s))


def _at(configured: Configured, wall_ms: int | None) -> dict[Source, str | None]:
    """The documents at a time (ms); None = at the beginning."""
    found: dict[Source, str | None] = {parsed(text)[:2]: text for text in configured}
    for version in configured.versions:
        if wall_ms is not None and version.since_ms <= wall_ms:
            found |= version.changed
    return found


def united(live: bytes, states: States) -> bytes:
    """The bytes of a shard."""
    if not states:
        return live
    header = json.dumps([len(live), *([*life, len(data)] for life, data in states.items())])
    text = header.encode()
    return b"".join((MAGIC, struct.pack("<I", len(text)), text, live, *states.values()))


def split(state: bytes | None) -> tuple[bytes | None, States]:
    """The state of the live core and those of shadows, from the bytes of a shard."""
    if state is None or state[:4] != MAGIC:
        return state, {}
    at = 8 + struct.unpack_from("<I", state, 4)[0]
    size, *others = json.loads(bytes(state[8:at]))
    live, at = bytes(state[at : at + size]), at + size
    found: States = {}
    for name, batch, size in others:
        found[name, batch] = bytes(state[at : at + size])
        at += size
    return live, found
