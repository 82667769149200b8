"""Length and CRC-32 of binary columns, which describe content that is not kept."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa

Array = np.ndarray


def digest(values: pa.Array | None, n: int) -> tuple[Array, Array]:
    """Length (bytes, -1 for null) and CRC-32 of n values, both int64; None = all null."""
    sizes, sums = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    if values is None or values.null_count == n:
        return sizes, sums
    wide = values.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = wide.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[wide.offset : wide.offset + n + 1]
    data = memoryview(data_buffer) if data_buffer is not None else memoryview(b"")
    has = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    bounds = offsets.tolist()
    for i in has.tolist():
        sums[i] = zlib.crc32(data[bounds[i] : bounds[i + 1]])
    sizes[has] = np.diff(offsets)[has]
    return sizes, sums
