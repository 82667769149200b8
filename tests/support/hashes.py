"""Hashes of single names."""

from __future__ import annotations

import numpy as np

from udfs.hashing import NULL_HASH, combine_hashes, hash64


def name_hash(*parts: str | None) -> int:
    """Hash of a name of one or more parts; equal to `combine_hashes` of the parts' hashes."""
    hashes = [np.array([NULL_HASH if p is None else hash64(p)], np.int64) for p in parts]
    return int(combine_hashes(*hashes)[0])
