"""Shared records: policies, broker starts and gaps, which hold for many keys and are kept once per
shard.

They are kept in order as long as they can matter. A key has taken those before its clock, so its
clock alone decides which ones hold for it. The job reads the content of a record into a struct
array beside the records: `what` is START, GAP or, from 1 on, a kind of document; `name` is the name
that it is about; further fields have what it sets; `fresh` is set in the batch that brought it. A
document of the configuration applies to every broker of every cluster, earlier than all times; a
changed one applies from the restart's stream time.

Worked example, with a parameter `samples` of 11 and these shared records of a cluster:

    rank  time  record
    0     1000  document of every broker: samples 5
    1     2000  document of b1: samples 7
    2     3000  document of every broker: samples 6
    3     4000  b1 starts

`turns` makes of them for b1, whose own document wins, and for b2:

    b1: 11 from the beginning, 5 from rank 0 on, 7 from rank 1 on, a start at rank 3
    b2: 11 from the beginning, 5 from rank 0 on, 6 from rank 2 on

A key of b1 judges a record of 2000 with 5, since a document comes behind the records of its time,
and one of 2001 with 7.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from state.engine import documents, globs
from state.engine.blobs import TEXTS
from state.engine.broker_changes import GAPS, SETTINGS, STARTS
from state.engine.names import NONE, Names
from state.engine.records import FLAGS, HOME, NULL, Array, Records, concat, length, take
from state.engine.refused import Refused
from state.engine.sequence import POLICY
from state.engine.sequence import Sequence as Order
from state.engine.structs import joined, picked, words
from state.events import DUPLICATE, EVERY_BROKER, KIND_INDEX

UNUSED, START, GAP = -1, 0, 1000
"""`what` of a document that the job does not use, of a broker start, and of a gap in a broker's
records."""
BEGINNING = -1
"""Rank of the first turn of a place, before all shared records."""
STARTED, LOST = KIND_INDEX["broker_started"], KIND_INDEX["gap"]
_TURN_OF = {START: int(STARTS), GAP: int(GAPS)}
Settings = tuple[float, ...]
Document = tuple[int, str, tuple[Any, ...]]
"""Kind and name of a policy document, and the values that it sets, in the order of the job's
fields.
"""


class SharedRecords(ABC):
    """How a job interprets shared records; one instance serves all shards."""

    sequence: Order
    meaning: np.dtype[Any]
    """`what`, `name`, the fields that documents set, `fresh`."""
    broker: int
    """`what` of the documents about brokers."""
    settings: tuple[str, ...]
    """Fields that documents about brokers set."""
    unset: int
    """Value of a field that a document does not set; values that are set are greater."""
    patterns: Mapping[int, str] = {}
    """Scope of each `what` of documents with patterns."""
    by_origin: bool
    """Whether a policy holds only for the broker that it came from, not for the whole cluster."""
    start: Settings = ()
    """Fields of a broker start that are not zero."""
    turn: np.dtype[Any]
    """Fields of a turn: `rank`, `at_ms`, `start` (see `broker_changes`, or 0), `fresh` and the result of
    `in_force`.
    """

    @abstractmethod
    def parsed(self, text: str) -> Document | None:
        """The content of a document; None for one that the job does not use."""

    @abstractmethod
    def sets(self, meaning: Array) -> Array:
        """Which documents set a value."""

    @abstractmethod
    def in_force(self, settings: Settings) -> tuple[Any, ...]:
        """Settings of a broker in the form that the kernel takes."""

    def meanings(self, records: Records, names: Names) -> Array:
        """The content of each shared record."""
        fields = (self.meaning.names or ())[2:-1]
        found = np.zeros(length(records), self.meaning)
        found["what"] = np.where(records["event_type"] == LOST, GAP, START)
        found["name"], found["fresh"] = NONE, 1
        for field, value in zip(fields, self.start, strict=False):
            found[field] = value
        policies = np.flatnonzero(records["event_type"] == POLICY)
        if not len(policies):
            return found
        texts, which = np.unique(records["policy_json"][policies], return_inverse=True)
        said = np.zeros(len(texts), self.meaning)
        said["fresh"] = 1
        for row, text in zip(said, texts.tolist(), strict=True):
            document = self.parsed(names.get(text))
            if document is None:
                row["what"] = UNUSED
                continue
            row["what"], name, values = document
            row["name"] = names.intern_one(name)
            for field, value in zip(fields, values, strict=True):
                row[field] = value
        found[policies] = said[which]
        return found

    def merged(
        self, records: Records, meaning: Array, new: Records, names: Names, refused: Refused
    ) -> tuple[Records, Array]:
        """Shared records and their content, merged with new ones in order. A repeated record is
        reported by the copy at home.
        """
        meaning["fresh"] = 0
        if not length(new):
            return records, meaning
        said = self.meanings(new, names)
        both = concat([records, new])
        every = joined([meaning, said])
        zero = np.zeros(length(both), np.int64)
        rows, _ = self.sequence.ordered(zero, both["ts_wall_ms"], both, names)
        twice = _repeated(rows, both, len(meaning))
        if len(twice):
            at_home = twice[both["home"][twice] & HOME != 0]
            refused.add(both, at_home, DUPLICATE, [""] * len(at_home))
            rows = rows[~np.isin(rows, twice)]
        rows = rows[np.concatenate([np.ones(len(meaning), bool), said["what"] != UNUSED])[rows]]
        return take(both, rows), picked(every, rows)

    def needed(self, records: Records, meaning: Array, past_ms: int) -> Array:
        """Shared records that can still matter: those that no later one, behind every key,
        replaces. A document that sets nothing is kept with the last one of its name that set
        something.
        """
        past = records["ts_wall_ms"] < past_ms
        if not past.any():
            return np.ones(len(meaning), bool)
        return _needed(
            self,
            words(meaning).tobytes(),
            records["cluster"].tobytes(),
            records["broker"].tobytes(),
            past.tobytes(),
        ).copy()

    def turns(
        self, records: Records, meaning: Array, places: Array, names: Names, base: Settings
    ) -> tuple[Array, Array]:
        """Turns of each place (cluster, broker), in order, the first of which holds from the
        beginning; and the start of each place's turns and their end.

        `base` are the settings of the parameters.
        """
        rows = np.flatnonzero((meaning["what"] == self.broker) | _of_broker(meaning))
        about = (
            rows.tobytes(),
            picked(meaning, rows).tobytes(),
            *(records[name][rows].tobytes() for name in ("ts_wall_ms", "cluster", "broker")),
        )
        everywhere = names.intern_one(EVERY_BROKER)
        found = [
            _turns(self, about, cluster, broker, everywhere, base)
            for cluster, broker in places[:, :2].tolist()
        ]
        begin = np.zeros(len(found) + 1, np.int64)
        np.cumsum([len(turns) for turns in found], out=begin[1:])
        content = b"".join(turns.tobytes() for turns in found)
        return np.frombuffer(bytearray(content), self.turn), begin


class Many:
    """Documents for many names among shared records: groups of documents that they add to those of
    single names, for the kernel to find the last one in."""

    def __init__(
        self, standing: SharedRecords, meaning: Array, names: Names, groups: Array, rank: Array
    ) -> None:
        """`rank` has the documents of single names, group by group; `groups` where each begins
        and, at the next, ends."""
        self._meaning, self._names, self._standing = meaning, names, standing
        self._groups, self._rank = groups, rank
        self._said: dict[documents.Source, list[int]] = {}
        for at in np.flatnonzero(np.isin(meaning["what"], list(standing.patterns))).tolist():
            scope = standing.patterns[int(meaning["what"][at])]
            source = scope, names.get(int(meaning["name"][at]))
            self._said.setdefault(source, []).append(at)
        self._sources = frozenset(self._said)
        self.added: list[list[tuple[int, tuple[int, ...]]]] = []
        """Groups that follow those of single names: see `globs.history`."""
        self._places: dict[tuple[Any, ...], int] = {}

    def __bool__(self) -> bool:
        return bool(self._said)

    def extend(self, own: Array, scope: str, name: Array) -> None:
        """Make the last column of `own`, the group of the configuration, the group of its documents
        for each name. The columns before it are groups of the stream.
        """
        known, which = np.unique(name, return_inverse=True)
        matched = [
            globs.known_matching(self._sources, scope, self._names.get(n)) if n >= 0 else ()
            for n in known.tolist()
        ]
        for row in np.flatnonzero(np.array([bool(m) for m in matched])[which]).tolist():
            about = *own[row].tolist(), matched[which[row]]
            if about not in self._places:
                self._places[about] = len(self._groups) - 1 + len(self.added)
                self.added.append(self._history(*about))
            own[row, -1] = self._places[about]

    def _history(self, *about: Any) -> list[tuple[int, tuple[int, ...]]]:
        *stream, configured, sources = about
        sets = self._standing.sets(self._meaning)
        return globs.history(
            [at for group in stream for at in self._ranks(group)],
            self._ranks(configured),
            {source: self._said[source] for source in sources},
            lambda at: bool(sets[at]),
        )

    def _ranks(self, group: int) -> list[int]:
        if group < 0:
            return []
        found: list[int] = self._rank[self._groups[group] : self._groups[group + 1]].tolist()
        return found

    def together(self) -> tuple[Array, list[tuple[int, tuple[int, ...]]]]:
        """Where all groups begin and, at the next, end, and the documents that are added."""
        ends = self._groups[-1] + np.cumsum([len(group) for group in self.added])
        return np.append(self._groups, ends).astype(np.int64), [
            one for group in self.added for one in group
        ]


# Most batches change nothing of what these are made of.


@lru_cache(maxsize=256)
def _needed(
    standing: SharedRecords, content: bytes, clusters: bytes, brokers: bytes, is_past: bytes
) -> Array:
    meaning = np.frombuffer(content, standing.meaning)
    cluster, broker = np.frombuffer(clusters, np.int64), np.frombuffer(brokers, np.int64)
    past = np.frombuffer(is_past, bool)
    n = len(meaning)
    start = _of_broker(meaning)
    origin = broker if standing.by_origin else np.where(start, broker, NONE)
    levels = (origin, cluster, meaning["name"], meaning["what"])
    by = np.lexsort((np.arange(n), *levels))
    followed = np.zeros(n, bool)
    same = np.ones(n - 1, bool)
    for level in levels:
        same &= level[by][1:] == level[by][:-1]
    followed[by[:-1]] = same & past[by[1:]]
    keep = ~followed
    empty = keep & past & ~standing.sets(meaning) & ~start
    # a document of the stream that sets nothing stands above patterns
    if empty.any() and not np.isin(meaning["what"], list(standing.patterns)).any():
        pair = meaning["what"] * np.int64(2**40) + meaning["name"]
        _, group = np.unique(pair, return_inverse=True)
        full = np.bincount(group, keep & ~empty, int(group.max()) + 1)
        keep &= ~(empty & (full[group] == 0))
    return keep


@lru_cache(maxsize=1024)
def _turns(
    standing: SharedRecords,
    about: tuple[bytes, ...],
    cluster: int,
    broker: int,
    everywhere: int,
    base: Settings,
) -> Array:
    """The turns of one place; `about` are ranks, content, times, clusters and brokers of records."""
    rows, content, times, clusters, brokers = about
    meaning = np.frombuffer(content, standing.meaning)
    broker_of = np.frombuffer(brokers, np.int64)
    start = _of_broker(meaning)
    name = np.where(start, broker_of, meaning["name"])
    where = np.frombuffer(clusters, np.int64)
    holds = np.where(
        start,
        (where == cluster) & (name == broker),
        ((where == cluster) | (where == NONE)) & ((name == broker) | (name == everywhere)),
    )
    if standing.by_origin:
        holds &= start | (broker_of == broker) | (broker_of == everywhere) | (broker_of == NONE)
    rank, at_ms = np.frombuffer(rows, np.int64), np.frombuffer(times, np.int64)
    own = every = (standing.unset,) * len(standing.settings)
    now = base
    found: list[tuple[Any, ...]] = [
        (BEGINNING, int(NULL), int(SETTINGS), 0, *standing.in_force(now))
    ]
    for i in np.flatnonzero(holds).tolist():
        if not start[i]:
            said = tuple(meaning[field][i].item() for field in standing.settings)
            if name[i] == broker:
                own = said
            if name[i] == everywhere:
                every = said
            before, now = (
                now,
                tuple(
                    a if a > standing.unset else b if b > standing.unset else c
                    for a, b, c in zip(own, every, base, strict=True)
                ),
            )
            if now == before:
                continue
        found.append(
            (
                int(rank[i]),
                int(at_ms[i]),
                _TURN_OF.get(int(meaning["what"][i]), int(SETTINGS)),
                int(meaning["fresh"][i]),
                *standing.in_force(now),
            )
        )
    return np.array(found, standing.turn)


def _of_broker(meaning: Array) -> Array:
    """Shared records about the broker that they came from."""
    return (meaning["what"] == START) | (meaning["what"] == GAP)


def _repeated(rows: Array, both: Records, known: int) -> Array:
    """Rows that repeat time, feed, cluster, broker and seq of known or earlier rows."""
    first = np.concatenate([rows[rows < known], rows[rows >= known]])
    first = first[both["has_seq"][first] != 0]
    identity = [both[c][first] for c in ("ts_wall_ms", "source_feed", "cluster", "broker", "seq")]
    by = np.lexsort(identity)
    again = np.ones(len(first), bool)
    again[:1] = False
    for column in identity:
        again[1:] &= column[by][1:] == column[by][:-1]
    return first[by[again]]


def configured(texts: Iterable[str], at_ms: int, blank: Records, names: Names) -> Records:
    """Documents of the configuration as records of a time; `blank` are records without rows."""
    numbers = [names.intern_one(text) for text in texts]
    n = len(numbers)
    records = Records(blank.columns, np.full((len(blank), n), NULL))
    for name in FLAGS:
        records[name][:] = 0
    for name in TEXTS & records.keys():
        records[name][:] = NONE
    records["event_type"][:] = POLICY
    records["ts_wall_ms"][:] = at_ms
    records["policy_json"][:] = numbers
    return records


def changes(was: Sequence[str], now: Sequence[str]) -> list[str]:
    """Changed documents of the configuration, with an empty one for each that was removed."""
    return _texts(documents.changes(was, now, None))


def _texts(changed: Mapping[documents.Source, str | None]) -> list[str]:
    return [
        json.dumps({"scope": scope, "name": name, "limits": {}}) if text is None else text
        for (scope, name), text in changed.items()
    ]


def following(
    configured_now: documents.Configured, number: int, blank: Records, names: Names
) -> list[Records]:
    """The changes of the versions after a number, as records of their times."""
    return [
        configured(_texts(version.changed), version.since_ms, blank, names)
        for version in configured_now.after(number)
    ]
