"""A job under its live policies, and beside them under others: shadows.

A shadow is a core of the same job with other documents. It gets the very blobs that the live core
gets, and its rows go to tables of its own. A shard that has no state of a shadow yet gives it that
of the live core: until then both have judged alike.

The bytes of a shard are those of the live core. With shadows they are 4 bytes magic, 4 bytes
length of a JSON header, the header, and the states that it names, one after the other.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from state.engine.documents import Version
from state.engine.job import Job, Step
from state.engine.table import WHOSE

MAGIC = b"WEIS"
Life = tuple[str, int]
"""The name of a shadow, and the batch that it began with: a name may begin anew."""
States = dict[Life, bytes]


@dataclass(frozen=True)
class Shadow:
    """Other policies for a job."""

    life: Life
    core: Job


class WithShadows:
    """A job with any number of shadows; as a `Job` it is the live one."""

    def __init__(
        self, live: Job, tables: Mapping[str, str], shadows: Sequence[Shadow] = ()
    ) -> None:
        """`tables`: by table of the job the one that has its rows of shadows."""
        self.name = live.name
        self._live, self._tables, self._shadows = live, tables, shadows

    def step(self, state: bytes | None, blobs: Sequence[bytes], stream_ms: int) -> Step:
        """See `state.engine.job`; rows of shadows have the column `policy`."""
        live, states = split(state)
        answer = self._live.step(live, blobs, stream_ms)
        if not self._shadows:
            return answer
        found: States = {}
        rows: dict[str, list[pa.Table]] = {}
        wakes = [] if answer.wake_at_ms is None else [answer.wake_at_ms]
        for shadow in self._shadows:
            one = shadow.core.step(states.get(shadow.life, live), blobs, stream_ms)
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
        self._live.follow(versions)

    def pieces(self, state: bytes, shards: int, everywhere: Iterable[int]) -> dict[int, bytes]:
        """See `state.engine.job`."""
        live, states = split(state)
        assert live is not None
        of = {s.life: (s.core, states[s.life]) for s in self._shadows if s.life in states}
        wanted = set(everywhere)
        for core, bytes_ in ((self._live, live), *of.values()):
            wanted |= core.pieces(bytes_, shards, wanted).keys()
        lives = self._live.pieces(live, shards, wanted)
        cut = {life: core.pieces(bytes_, shards, wanted) for life, (core, bytes_) in of.items()}
        return {
            shard: united(piece, {life: found[shard] for life, found in cut.items()})
            for shard, piece in lives.items()
        }

    def joined(self, pieces: Sequence[bytes]) -> bytes:
        """See `state.engine.job`; a piece without a state of a shadow has the live one for it. It
        gets its own here, since the joined live state may know versions that came after."""
        every = [_split(piece) for piece in pieces]
        return united(
            self._live.joined([live for live, _ in every]),
            {
                s.life: s.core.joined([states.get(s.life, live) for live, states in every])
                for s in self._shadows
            },
        )


def united(live: bytes, states: States) -> bytes:
    """The bytes of a shard."""
    if not states:
        return live
    header = json.dumps([len(live), *([*life, len(data)] for life, data in states.items())])
    text = header.encode()
    return b"".join((MAGIC, struct.pack("<I", len(text)), text, live, *states.values()))


def split(state: bytes | None) -> tuple[bytes | None, States]:
    """The state of the live core and those of shadows, from the bytes of a shard."""
    return (None, {}) if state is None else _split(state)


def _split(state: bytes) -> tuple[bytes, States]:
    if state[:4] != MAGIC:
        return state, {}
    at = 8 + struct.unpack_from("<I", state, 4)[0]
    size, *others = json.loads(bytes(state[8:at]))
    live, at = bytes(state[at : at + size]), at + size
    found: States = {}
    for name, batch, size in others:
        found[name, batch] = bytes(state[at : at + size])
        at += size
    return live, found


def live_state(state: bytes) -> bytes:
    """The state of the live core, from the bytes of a shard."""
    return _split(state)[0]
