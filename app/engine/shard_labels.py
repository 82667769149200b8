"""Labels of shards: the numbers by which Spark distributes the states of a job.

Spark chooses the partition of a group by its hash, and the few shards of a job may all hash to one.
Therefore a shard has a label in place of its number: of the numbers shard, shard + n, shard + 2 n and
so on, with n shards of the job, the first of those whose partition has the fewest of the job's
shards. `label % n` is the shard.
"""

from __future__ import annotations

from functools import cache

import mmh3

TRIES = 64
"""Numbers that a label is chosen among: with so many, partitions differ by a shard or two."""
SEED = 42
"""Of the hash by which Spark chooses a partition."""
_WORD = 0xFFFFFFFF


@cache
def labels(job: str, shards: int, partitions: int) -> tuple[int, ...]:
    """The label of each shard of a job, for a number of shuffle partitions."""
    seed, count, found = _hash_of_text(job), [0] * partitions, list[int]()
    for shard in range(shards):
        tried = range(shard, shard + TRIES * shards, shards)
        places = [partition_of(label, partitions, seed) for label in tried]
        best = min(range(TRIES), key=[count[place] for place in places].__getitem__)
        count[places[best]] += 1
        found.append(tried[best])
    return tuple(found)


def partition_of(number: int, partitions: int, seed: int = SEED) -> int:
    """The partition of a group whose last key is an int; `seed` is the hash of the keys before it."""
    return mmh3.hash(number.to_bytes(4, "little"), seed) % partitions


def _hash_of_text(text: str) -> int:
    """Spark's hash of a text: MurmurHash3 (x86, 32 bit), but that each byte behind the last whole
    word counts as a word, with its sign."""
    data = text.encode()
    whole = len(data) & ~3
    words = [int.from_bytes(data[i : i + 4], "little") for i in range(0, whole, 4)]
    words += [(byte - 256 if byte > 127 else byte) & _WORD for byte in data[whole:]]
    h = SEED
    for word in words:
        h ^= _rotate(word * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
        h = (_rotate(h, 13) * 5 + 0xE6546B64) & _WORD
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & _WORD
    h = (h ^ h >> 13) * 0xC2B2AE35 & _WORD
    return h ^ h >> 16


def _rotate(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _WORD
