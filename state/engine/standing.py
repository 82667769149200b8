"""Records that hold for many keys: policies and broker starts, kept once per shard.

They stay in their order as long as they can matter. A key has taken those before its clock, so what
holds for it follows from its clock alone. The job reads the content of a record into a struct array
beside the records: `what` is START, or a kind of document from 1 on, `name` whom it is about,
`fresh` is set in the batch that brought it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import numpy as np

from state.engine.names import NONE, Names
from state.engine.records import NULL, Array, Records, concat, length, take
from state.engine.refused import DUPLICATE, Refused
from state.engine.sequence import POLICY, Sequence

START = 0
"""`what` of the start of a broker."""


def merged(
    records: Records, meaning: Array, new: Records, said: Array, sequence: Sequence, names: Names,
    refused: Refused,
) -> tuple[Records, Array]:
    """Shared records, and their content (`what` < 0: none), with new ones among them, in order;
    a repeated one is reported by the copy that is at home."""
    wanted = said["what"] >= 0
    both = concat([records, new])
    every = np.concatenate([meaning, said])
    zero = np.zeros(length(both), np.int64)
    rows, _ = sequence.ordered(zero, both["ts_wall_ms"], both, names)
    twice = _repeated(rows, both, len(meaning))
    if len(twice):
        at_home = twice[both["home"][twice] != 0]
        refused.add(both, at_home, DUPLICATE, [""] * len(at_home))
        rows = rows[~np.isin(rows, twice)]
    rows = rows[np.concatenate([np.ones(len(meaning), bool), wanted])[rows]]
    return take(both, rows), every[rows]


def _repeated(rows: Array, both: Records, known: int) -> Array:
    """Rows that repeat time, feed, cluster, broker and seq: of known ones, or of earlier ones."""
    first = np.concatenate([rows[rows < known], rows[rows >= known]])
    first = first[both["has_seq"][first] != 0]
    identity = [both[c][first] for c in ("ts_wall_ms", "source_feed", "cluster", "broker", "seq")]
    by = np.lexsort(identity)
    again = np.ones(len(first), bool)
    again[:1] = False
    for column in identity:
        again[1:] &= column[by][1:] == column[by][:-1]
    return first[by[again]]


def configured(
    texts: Iterable[str], at_ms: int, blank: Records, sequence: Sequence, names: Names
) -> Records:
    """Documents of the configuration as records of a time; `blank` are no records."""
    numbers = [names.intern_one(text) for text in texts]
    n = len(numbers)
    records = {
        name: np.full(n, 0 if column.dtype == np.int8 else NULL, column.dtype)
        for name, column in blank.items()
    }
    for name in sequence.texts & records.keys():
        records[name][:] = NONE
    records["event_type"][:] = POLICY
    records["ts_wall_ms"][:] = at_ms
    records["policy_json"][:] = numbers
    return records


def changes(
    was: Iterable[str], now: Iterable[str], source_of: Callable[[str], tuple[str, str]]
) -> list[str]:
    """Documents of the configuration that have changed; an empty one for each that is gone.

    `source_of` gives scope and name of a document.
    """
    before = {source_of(text): text for text in was}
    after = {source_of(text): text for text in now}
    found = [text for source, text in after.items() if before.get(source) != text]
    gone = [source for source in before if source not in after]
    return found + [json.dumps({"scope": s, "name": n, "limits": {}}) for s, n in gone]


def needed(records: Records, meaning: Array, origin: Array, sets: Array, stream_ms: int) -> Array:
    """Which shared records can still matter: those that no later one, behind every key, replaces.

    `origin` parts what replaces only its like (a broker, say), `sets` marks documents that set
    something; one that sets nothing goes with the last one of its name that set something.
    """
    n = len(meaning)
    if not n:
        return np.zeros(0, bool)
    past = records["ts_wall_ms"] < stream_ms
    start = meaning["what"] == START
    levels = (origin, records["cluster"], meaning["name"], meaning["what"])
    by = np.lexsort((np.arange(n), *levels))
    followed = np.zeros(n, bool)
    same = np.ones(n - 1, bool)
    for level in levels:
        same &= level[by][1:] == level[by][:-1]
    followed[by[:-1]] = same & past[by[1:]]
    keep = ~followed
    empty = keep & past & ~sets & ~start
    if empty.any():
        pair = meaning["what"] * np.int64(2**40) + meaning["name"]
        _, group = np.unique(pair, return_inverse=True)
        full = np.bincount(group, keep & ~empty, int(group.max()) + 1)
        keep &= ~(empty & (full[group] == 0))
    return keep
