"""Lines of a file as Arrow arrays, a block at a time: no Spark, no Python call a line."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BLOCK_BYTES = 16 << 20
BOM = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"
NEWLINE = 0x0A
MAX_BYTES = (1 << 31) - 1  # offsets of an Arrow binary array have 32 bits


def numbered(
    file: pa.NativeFile, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """(lines without their newline, line numbers from 0) of a file, a block at a time.

    A file that begins like gzip is unpacked, whatever its name. Bytes are unchanged, valid UTF-8 or
    not, and so is a carriage return. A line that is empty or a lone carriage return is no record,
    but it counts. A line longer than 1 GiB is a ValueError, a damaged file an OSError.
    """
    head = file.read(3)
    file.seek(len(BOM) if head == BOM else 0)
    packed = head[:2] == GZIP
    blocks = (
        _unpacked(pa.CompressedInputStream(file, "gzip"), block_bytes)
        if packed
        else (_plain(file, block_bytes))
    )
    first = 0
    for block in blocks:
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == NEWLINE)
        offsets = np.zeros(len(ends) + 1, np.int32)
        np.add(ends, 1, out=offsets[1:], casting="unsafe")
        whole = pa.Array.from_buffers(
            pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(block)]
        )
        values = pc.binary_slice(whole, 0, -1)
        numbers = pa.array(np.arange(first, first + len(ends), dtype=np.int64))
        first += len(ends)
        if (np.diff(offsets) <= 2).any():
            full = pc.and_(pc.greater(pc.binary_length(values), 0), pc.not_equal(values, b"\r"))
            values, numbers = values.filter(full), numbers.filter(full)
        if len(values):
            yield values, numbers


def _plain(file: pa.NativeFile, block_bytes: int) -> Iterator[pa.Buffer | bytes]:
    """Blocks of whole lines: what follows the last newline of a block is read once more."""
    want = block_bytes
    start = file.tell()
    while True:
        file.seek(start)
        block = file.read_buffer(want)
        cut = _after_last_newline(block)
        if cut:
            yield block.slice(0, cut)
            start, want = start + cut, block_bytes
        elif block.size < want:  # the end of the file, without a newline
            if block.size:
                yield block.to_pybytes() + b"\n"
            return
        else:
            want = _longer(want)


def _unpacked(stream: pa.NativeFile, block_bytes: int) -> Iterator[bytes]:
    """Blocks of whole lines of a file that can only be read forwards."""
    rest = stream.read(len(BOM)).removeprefix(BOM)
    want = block_bytes
    while piece := stream.read(want):
        rest += piece
        cut = _after_last_newline(rest)
        if cut:
            yield rest[:cut]
            rest, want = rest[cut:], block_bytes
        else:
            want = _longer(len(rest))
    if rest:
        yield rest if rest.endswith(b"\n") else rest + b"\n"


def _longer(size: int) -> int:
    """How much to read for a line that does not fit in `size` bytes."""
    if 2 * size > MAX_BYTES:
        raise ValueError("a line is longer than 1 GiB")
    return 2 * size


def _after_last_newline(block: pa.Buffer | bytes) -> int:
    """Bytes of the block up to and including its last newline."""
    view = np.frombuffer(block, np.uint8)
    step = 1 << 12
    for end in range(len(view), 0, -step):
        begin = max(0, end - step)
        found = np.flatnonzero(view[begin:end] == NEWLINE)
        if len(found):
            return begin + int(found[-1]) + 1
    return 0
