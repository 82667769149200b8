"""The compiled MurmurHash3 of producer ids against mmh3 and against recorded hashes."""

from __future__ import annotations

import gzip
import json
import struct
from typing import Any

import mmh3
import numpy as np

from state.producer_ids.murmur import murmur3
from tests.unit.state.recorded import VECTORS

EDGES = (0, 1, 2, -1, -2, 255, 256, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, -(2**63))


def hashes() -> list[dict[str, Any]]:
    """Recorded hashes of producer ids; the file does not say how many cases it has."""
    with gzip.open(VECTORS / "hash.jsonl.gz", "rt") as lines:
        _, *found = [json.loads(line) for line in lines]
    return [case for case in found if "pid" in case]


def _by_mmh3(pid: int) -> tuple[int, int]:
    return mmh3.hash64(struct.pack("<q", pid), 0, x64arch=True, signed=False)


def test_edges_are_those_of_mmh3() -> None:
    for pid in EDGES:
        low, high = murmur3(np.int64(pid))
        assert (int(low), int(high)) == _by_mmh3(pid), pid


def test_random_ids_are_those_of_mmh3() -> None:
    pids = np.random.default_rng(936).integers(-(2**63), 2**63 - 1, 20_000, endpoint=True)
    assert [murmur3(pid) for pid in pids] == [_by_mmh3(pid) for pid in pids.tolist()]


def test_recorded_hashes() -> None:
    found = hashes()
    assert len(found) == 136
    for case in found:
        pid = case["pid"]
        if case["bytes"].startswith("big-endian"):
            (pid,) = struct.unpack("<q", struct.pack(">q", pid))
        low, high = murmur3(np.int64(pid))
        assert [int(low), int(high)] == [half % 2**64 for half in case["murmur3_128"]], case["id"]
