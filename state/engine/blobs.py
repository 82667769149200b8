"""Blobs carry records from the router to a shard, as columns of fixed width.

A blob has a header, one descriptor per column, the distinct names that its records use, and the
columns. A value is stored as its difference from the least of its column, in as few bytes as the
largest difference needs; a column of equal values takes none. Names are stored as positions among
the names of the blob. Payloads, which few records have, follow at the end.

    header      magic, records, columns, names, bytes of names, bytes of payloads    6 x uint32
    descriptor  column, width (bytes of a value), kind, least value                  4 x int64
    names       their lengths (uint32 each), then their UTF-8, padded to 8 bytes
    columns     values, each column padded to 8 bytes
    payloads    an Arrow IPC stream of one binary column, if any record has one
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
import pyarrow as pa

from state.engine.kernel import NULL
from state.events import SCHEMA

Array = np.ndarray
SOURCE_COLUMNS = ("source_partition", "source_offset")
PAYLOAD_COLUMNS = ("payload_bytes", "payload_crc32", "payload_file", "payload_row")
COLUMNS: tuple[str, ...] = (
    *(name for name in SCHEMA.names if name != "payload"),
    *SOURCE_COLUMNS,
    *PAYLOAD_COLUMNS,
    "has_seq",
    "home",
    "ingest_ms",
)
"""Columns that a blob can carry; a descriptor names a column by its position here. `has_seq`
distinguishes a null from every 64-bit value of `seq`. `home` is 0 on copies of a record that other
shards report.
"""
NUMBER = {name: i for i, name in enumerate(COLUMNS)}
TEXTS = frozenset(
    {f.name for f in SCHEMA if f.type == pa.string()} - {"event_type"}
    | {"marker_ids", "source_partition", "payload_file", "user"}
)
"""Columns of names; `marker_ids` is a list joined by commas, `user` what a core makes of a principal."""
HEADER, DESCRIPTOR = 24, 32
_MAGIC = np.uint32(int.from_bytes(b"WEB1", "little"))
_PLAIN, _WITH_NULLS, _NAMES = np.int64(0), np.int64(1), np.int64(2)
_NONE = np.int64(-1)


@numba.njit(cache=True, nogil=True)
def _width(least: int, most: int) -> int:
    """Bytes of the largest difference; 8 for a range that wraps around 64 bits."""
    span = np.uint64(most) - np.uint64(least)
    if span == np.uint64(0):
        return 0
    width = 1
    while width < 8 and span >> np.uint64(8 * width) != np.uint64(0):
        width += 1
    return 8 if width == 7 else width


@numba.njit(cache=True, nogil=True)
def _padded(size: int) -> int:
    return (size + 7) & ~7


@numba.njit(cache=True, nogil=True)
def _number_names(
    values: Array, is_text: Array, begin: int, end: int, place: Array, used: Array
) -> int:
    """Number the names of a part in order of appearance, in place; returns their count."""
    count = 0
    for c in range(len(values)):
        if not is_text[c]:
            continue
        column, before = values[c], _NONE
        for i in range(begin, end):
            name = column[i]
            if name < 0:
                continue
            if name != before and place[name] < 0:
                place[name], used[count] = count, name
                count += 1
            before = name
            column[i] = place[name]
    return count


@numba.njit(cache=True, nogil=True)
def _describe(
    values: Array,
    is_text: Array,
    begin: int,
    end: int,
    names: int,
    widths: Array,
    kinds: Array,
    bases: Array,
) -> int:
    """Width, kind and least value of each column of a part; returns the bytes of the columns."""
    size = 0
    for c in range(len(values)):
        column = values[c]
        if is_text[c]:
            # places are from 0 on, one less is no name
            least, most = np.int64(names), _NONE
            for i in range(begin, end):
                least, most = min(least, column[i]), max(most, column[i])
            kinds[c], bases[c], widths[c] = _NAMES, least, _width(least, most)
        else:
            # one less than NULL is the greatest of all: nulls decide neither bound
            before, most, nulls = np.int64(2**63 - 1), NULL, False
            for i in range(begin, end):
                value = column[i]
                before, most = min(before, value - 1), max(most, value)
                nulls |= value == NULL
            least = before + 1
            if most == NULL:
                kinds[c], bases[c], widths[c] = _PLAIN, NULL, 0
            elif not nulls:
                kinds[c], bases[c], widths[c] = _PLAIN, least, _width(least, most)
            elif _width(least, most) == 8:
                kinds[c], bases[c], widths[c] = _PLAIN, NULL, 8
            else:
                # distance 0 is the null
                kinds[c], bases[c] = _WITH_NULLS, least - 1
                widths[c] = _width(least - 1, most)
        size += _padded(widths[c] * (end - begin))
    return size


@numba.njit(cache=True, nogil=True)
def _distances(column: Array, with_nulls: bool, base: int, out: Array) -> None:
    """How far each value of a column is from the base."""
    if with_nulls:
        for i in range(len(column)):
            value = column[i] if column[i] != NULL else base
            out[i] = np.uint64(value - base)
    else:
        for i in range(len(column)):
            out[i] = np.uint64(column[i] - base)


@numba.njit(cache=True, nogil=True)
def _put(out: Array, at: int, width: int, values: Array) -> None:
    """Write differences as bytes, the lowest first."""
    n = len(values)
    if width == 1:
        for i in range(n):
            out[at + i] = values[i]
    elif width == 2:
        two = out[at : at + 2 * n].view(np.uint16)
        for i in range(n):
            two[i] = values[i]
    elif width == 4:
        four = out[at : at + 4 * n].view(np.uint32)
        for i in range(n):
            four[i] = values[i]
    elif width == 8:
        eight = out[at : at + 8 * n].view(np.uint64)
        for i in range(n):
            eight[i] = values[i]
    else:
        for i in range(n):
            value = values[i]
            for b in range(width):
                out[at + i * width + b] = (value >> np.uint64(8 * b)) & np.uint64(255)


@numba.njit(cache=True, nogil=True)
def _get(data: Array, at: int, width: int, n: int, out: Array) -> None:
    """The inverse of `_put`."""
    if width == 0:
        out[:n] = np.uint64(0)
    elif width == 1:
        for i in range(n):
            out[i] = data[at + i]
    elif width == 2:
        two = data[at : at + 2 * n].view(np.uint16)
        for i in range(n):
            out[i] = two[i]
    elif width == 4:
        four = data[at : at + 4 * n].view(np.uint32)
        for i in range(n):
            out[i] = four[i]
    elif width == 8:
        eight = data[at : at + 8 * n].view(np.uint64)
        for i in range(n):
            out[i] = eight[i]
    else:
        for i in range(n):
            value = np.uint64(0)
            for b in range(width):
                value |= np.uint64(data[at + i * width + b]) << np.uint64(8 * b)
            out[i] = value


@numba.njit(cache=True, nogil=True)
def _name_again(values: Array, is_text: Array, begin: int, end: int, used: Array) -> None:
    """The inverse of `_number_names`."""
    for c in range(len(values)):
        if is_text[c]:
            for i in range(begin, end):
                if values[c, i] >= 0:
                    values[c, i] = used[values[c, i]]


@numba.njit(cache=True, nogil=True)
def _write(
    values: Array,
    columns: Array,
    is_text: Array,
    bounds: Array,
    texts: tuple[Array, Array],
    out: Array,
    ends: Array,
    done: int,
) -> int:
    """Write one blob per part, one after the other, behind those that are done; returns the first
    part for which there is no room in `out`. In the parts before it `values` has numbers of names,
    whose bytes and offsets are `texts`.
    """
    name_bytes, name_offsets = texts
    count = len(columns)
    place = np.full(len(name_offsets), _NONE, np.int64)
    used = np.empty(len(name_offsets), np.int64)
    widths, kinds, bases = (
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
    )
    most = 0
    for p in range(len(bounds) - 1):
        most = max(most, bounds[p + 1] - bounds[p])
    scratch = np.empty(most, np.uint64)
    at = ends[done - 1] if done else np.int64(0)
    for p in range(done, len(bounds) - 1):
        begin, end = bounds[p], bounds[p + 1]
        names = _number_names(values, is_text, begin, end, place, used)
        size = 0
        for i in range(names):
            size += name_offsets[used[i] + 1] - name_offsets[used[i]]
        body = _describe(values, is_text, begin, end, names, widths, kinds, bases)
        head = HEADER + DESCRIPTOR * count + _padded(4 * names + size)
        if at + head + body > len(out):
            _name_again(values, is_text, begin, end, used)
            return p
        words = out[at : at + HEADER].view(np.uint32)
        words[0], words[1], words[2] = _MAGIC, end - begin, count
        words[3], words[4], words[5] = names, size, 0
        for c in range(count):
            start = at + HEADER + DESCRIPTOR * c
            described = out[start : start + DESCRIPTOR].view(np.int64)
            described[0], described[1] = columns[c], widths[c]
            described[2], described[3] = kinds[c], bases[c]
        start = at + HEADER + DESCRIPTOR * count
        lengths = out[start : start + 4 * names].view(np.uint32)
        start += 4 * names
        for i in range(names):
            first, last = name_offsets[used[i]], name_offsets[used[i] + 1]
            lengths[i] = last - first
            for b in range(first, last):
                out[start] = name_bytes[b]
                start += 1
        for b in range(start, at + head):
            out[b] = 0
        start = at + head
        for c in range(count):
            if widths[c] == 0:
                continue
            _distances(values[c, begin:end], kinds[c] == _WITH_NULLS, bases[c], scratch)
            _put(out, start, widths[c], scratch[: end - begin])
            start += _padded(widths[c] * (end - begin))
        for i in range(names):
            place[used[i]] = _NONE
        at += head + body
        ends[p] = at
    return len(bounds) - 1


def write(
    columns: Sequence[str],
    values: Array,
    bounds: Array,
    name_bytes: Array,
    name_offsets: Array,
) -> tuple[Array, Array]:
    """Blobs of parts of records, one after the other, and the end of each (bytes).

    `values` (column, record; int64) has NULL for a null; columns of names have a position among the
    names, -1 for none; they are changed. The records of part p are from `bounds[p]` to
    `bounds[p + 1]`.
    """
    numbers = np.array([NUMBER[name] for name in columns], np.int64)
    is_text = np.array([name in TEXTS for name in columns], np.bool_)
    ends = np.zeros(len(bounds) - 1, np.int64)
    out = np.empty(
        values.nbytes // 3 + 2 * len(name_bytes) + (HEADER + 64 * len(columns)) * len(ends),
        np.uint8,
    )
    done = 0
    while True:
        done = _write(values, numbers, is_text, bounds, (name_bytes, name_offsets), out, ends, done)
        size = int(ends[done - 1]) if done else 0
        if done == len(ends):
            return out[:size], ends
        larger = np.empty(2 * len(out), np.uint8)
        larger[:size] = out[:size]
        out = larger


def with_payload(blob: bytes, payload: pa.Array | None) -> bytes:
    """A blob with the payloads of its records (null for a record without one)."""
    if payload is None or payload.null_count == len(payload):
        return blob
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([payload], ["payload"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue().to_pybytes()
    return blob[:20] + len(stream).to_bytes(4, "little") + blob[24:] + stream


@numba.njit(cache=True, nogil=True)
def _read(data: Array, wanted: Array, known: Array, out: Array, first: int) -> bool:
    """Read columns of a blob into their rows of `out`, from a position on; false if one is missing."""
    words = data[:HEADER].view(np.uint32)
    n, count, names, size = (
        np.int64(words[1]),
        np.int64(words[2]),
        np.int64(words[3]),
        np.int64(words[4]),
    )
    at = HEADER + DESCRIPTOR * count + _padded(4 * names + size)
    scratch = np.empty(n, np.uint64)
    found = 0
    for c in range(count):
        start = HEADER + DESCRIPTOR * c
        described = data[start : start + DESCRIPTOR].view(np.int64)
        column, width, kind, base = described[0], described[1], described[2], described[3]
        place = wanted[column]
        if place >= 0:
            found += 1
            row = out[place][first : first + n]
            if width == 0:
                value = base
                if kind == _NAMES:
                    value = known[base] if base >= 0 else _NONE
                for i in range(n):
                    row[i] = value
            else:
                _get(data, at, width, n, scratch)
                if kind == _NAMES:
                    for i in range(n):
                        name = base + np.int64(scratch[i])
                        row[i] = known[name] if name >= 0 else _NONE
                elif kind == _WITH_NULLS:
                    for i in range(n):
                        row[i] = NULL if scratch[i] == 0 else base + np.int64(scratch[i])
                else:
                    for i in range(n):
                        row[i] = np.int64(np.uint64(base) + scratch[i])
        at += _padded(width * n)
    for place in wanted:
        found -= place >= 0
    return found == 0


class Blob:
    """The parts of a blob."""

    def __init__(self, blob: bytes | bytearray | memoryview) -> None:
        """Raises ValueError for bytes that are not a blob."""
        self._data = np.frombuffer(memoryview(blob).toreadonly(), np.uint8)
        words = self._data[:HEADER].view(np.uint32) if len(self._data) >= HEADER else (0,)
        if words[0] != _MAGIC:
            raise ValueError("not a blob of records")
        _, self.length, self._columns, self._names, self._name_bytes, self._payload = map(
            int, words
        )

    def names(self) -> tuple[Array, Array]:
        """UTF-8 and offsets (int64) of the names."""
        start = HEADER + DESCRIPTOR * self._columns
        offsets = np.zeros(self._names + 1, np.int64)
        lengths = self._data[start : start + 4 * self._names].view(np.uint32)
        np.cumsum(lengths, out=offsets[1:])
        start += 4 * self._names
        return self._data[start : start + self._name_bytes], offsets

    def texts(self) -> pa.StringArray:
        """The names as one Arrow array."""
        data, offsets = self.names()
        return pa.StringArray.from_buffers(
            self._names, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)
        )

    def columns(self) -> tuple[str, ...]:
        """The columns that the blob carries."""
        described = self._data[HEADER : HEADER + DESCRIPTOR * self._columns].view(np.int64)
        return tuple(COLUMNS[i] for i in described[::4])

    def read(self, places: Array, known: Array, out: Array, at: int = 0) -> None:
        """Read columns into rows of `out` (row, record; int64), the first record at `at`.

        `places` has the row of each of COLUMNS, -1 for an unwanted one; `known` has the integers of
        the blob's names. Raises ValueError if a wanted column is missing.
        """
        if not _read(self._data, places, known, out, at):
            raise ValueError("a blob has not all columns that its job reads")

    def values(self, columns: Sequence[str]) -> Array:
        """Columns (column, record; int64), names by their positions in `texts`."""
        out = np.empty((len(columns), self.length), np.int64)
        self.read(places(tuple(columns)), np.arange(self._names + 1), out)
        return out

    def table(self) -> pa.Table:
        """All columns, null for a record without a value."""
        columns, texts = self.columns(), self.texts()
        values = self.values(columns)
        return pa.table(
            {
                name: texts.take(pa.array(column, mask=column < 0))
                if name in TEXTS
                else pa.array(column, mask=column == NULL)
                for name, column in zip(columns, values, strict=True)
            }
        )

    def payload(self) -> pa.Array:
        """The payload of each record."""
        if not self._payload:
            return pa.nulls(self.length, pa.binary())
        with pa.ipc.open_stream(pa.py_buffer(self._data[-self._payload :])) as reader:
            return reader.read_all().column("payload").combine_chunks()

    def filtered(self, kept: Array) -> bytes:
        """The blob of some of its records (bool); payloads are left out."""
        columns = self.columns()
        values = np.ascontiguousarray(self.values(columns)[:, kept])
        data, offsets = self.names()
        bounds = np.array([0, values.shape[1]], np.int64)
        return write(columns, values, bounds, data, offsets)[0].tobytes()


def places(columns: tuple[str, ...]) -> Array:
    """For each column of a blob its position among these, -1 if it is not among them."""
    found = np.full(len(COLUMNS), -1, np.int64)
    for i, name in enumerate(columns):
        found[NUMBER[name]] = i
    return found
