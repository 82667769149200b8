"""Routing: valid records to the shards of the jobs that read them, packed as Arrow blobs.

Runs in a Python worker, one Arrow batch of raw records at a time. A blob is one Arrow IPC stream:
the columns of a job, text dictionary-encoded, so 64-bit integers and nulls travel as they are and
a name crosses the shuffle once per blob. Every row of the answer carries the latest wall time of
the valid records of its batch: Spark derives the stream's clock from it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.ingest.batches import regrouped
from app.ingest.contract import DIGESTS, Limits, Parsed, from_table, parse_batch
from app.ingest.messages import Kind, Message
from app.ingest.parsing.layout import INDEX
from app.ingest.payloads import Payloads
from state.engine.records import INGEST_KEY, SOURCE_COLUMNS
from state.events import COMMON, KIND_INDEX, KINDS, SCHEMA
from state.producer_ids.shard import USER
from udfs.arrow import offsets_of, plain
from udfs.hashing import NULL_HASH, combine_hashes, hash_strings, shard_of
from udfs.users import user_of

Array = np.ndarray
PACKED = "job string, shard int, ts timestamp, blob binary"
CLOCK = Message(Kind.CLOCK).address
"""Job of a row that carries nothing but the latest wall time."""
LATEST_MS = 253_402_300_799_999
"""9999-12-31: later wall times do not move the stream's clock."""
_TS = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [("job", pa.string()), ("shard", pa.int32()), ("ts", _TS), ("blob", pa.binary())]
)
EVERY_BROKER = "*"
PRINCIPAL = "principal"
RAW_TOPIC = "raw topic"
POLICY = KIND_INDEX["policy"]
DISPATCH = KIND_INDEX["dispatch"]
PLACES = ("payload_file", "payload_row")
BLOB_BYTES = 3 << 19
"""Limit of one blob, which only a single record can exceed. Spark puts up to
`app.stream.session.OPERATOR_ROWS` blobs into one Arrow vector, which holds less than 2 GiB."""
COLUMN_BYTES = 9
"""A number, or the index of a text among the distinct ones, with the bit for null."""
TOPIC_BYTES = 64
"""What a topic's one spelling adds to the topic as it came: scheme and partition."""
POSITION_BYTES = 42
"""The longest position of a marker and a comma."""
SMALL_BYTES = 2_048
_TEXTS = {f.name for f in SCHEMA if f.type == pa.string()} - {"event_type"}


@dataclass(frozen=True)
class Route:
    """What a job takes: its columns, and the columns whose values name its key.

    With `assembles` the payloads of chunks travel as well; `payloads` stages the large ones.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    assembles: bool = False
    payloads: Payloads | None = None
    everywhere: tuple[str, ...] = ()
    """Kinds that go to every shard."""


@numba.njit(cache=True, nogil=True)
def _renumber(codes: Array, scratch: Array, out: Array, used: Array) -> int:
    """Codes of a slice as positions among the values it uses; answers how many those are."""
    count = 0
    for i in range(len(codes)):
        code = codes[i]
        if code < 0:
            out[i] = 0
            continue
        if scratch[code] < 0:
            scratch[code] = count
            used[count] = code
            count += 1
        out[i] = scratch[code]
    for i in range(count):
        scratch[used[i]] = -1
    return count


def packer(
    routes: Mapping[str, Route], shards: int, limits: Limits, live: bool = True
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: raw records in, rows of PACKED out.

    `live` = the records are read for the first time, so one far in the future is refused.
    """

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in regrouped(batches):
            now = time.time_ns() // 1_000_000
            parsed = parse_batch(batch, limits, now if live else None, list(routes))
            yield pack_parsed(parsed, batch, routes, shards, now)

    return pack


def typed_packer(
    routes: Mapping[str, Route], shards: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: rows of `events` in, rows of PACKED out.

    A column `left_out` (list of jobs) names the jobs that do not get a record.
    """

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in regrouped(batches):
            parsed = from_table(batch, list(routes))
            ingest = batch.column("ingest_ms").to_numpy(zero_copy_only=False)
            left_out = _left_out(batch)
            yield pack_parsed(parsed, batch, routes, shards, int(ingest.max()), left_out)

    return pack


def needed(routes: Mapping[str, Route]) -> tuple[list[str], list[str]]:
    """Columns of `events` that `typed_packer` needs for these jobs, and the kinds that they read.

    Of records that have been validated before; what is not needed need not be read.
    """
    kinds = [kind for kind in KINDS if set(kind.jobs) & set(routes)]
    wanted = {*COMMON, "partition", "ts_wall_ms", "ts_mono_ns"}
    wanted |= {column for route in routes.values() for column in route.columns}
    wanted |= {"payload" for route in routes.values() if route.assembles}
    wanted |= {column for kind in kinds for column in kind.required}
    columns = [name for name in (*SCHEMA.names, *DIGESTS) if name in wanted]
    return [*columns, *SOURCE_COLUMNS, "ingest_ms"], [kind.name for kind in kinds]


def _left_out(batch: pa.RecordBatch) -> dict[str, Array]:
    """Rows that each job does not get."""
    if "left_out" not in batch.schema.names:
        return {}
    lists = batch.column("left_out").to_pylist()
    jobs = {job for row in lists if row for job in row}
    return {job: np.array([bool(row) and job in row for row in lists]) for job in jobs}


def pack_parsed(
    parsed: Parsed, identity: pa.RecordBatch, routes: Mapping[str, Route], shards: int,
    ingest_ms: int, left_out: Mapping[str, Array] | None = None,
) -> pa.RecordBatch:
    """Rows of PACKED for parsed records; `identity` has their source_partition and offset."""
    latest = _latest_ms(parsed)
    packer_ = _Packer(parsed, identity, ingest_ms)
    jobs: list[str] = []
    places: list[int] = []
    blobs: list[bytes] = []
    for job, route in routes.items():
        wanted = parsed.job_ok[job]
        if left_out and job in left_out:
            wanted = wanted & ~left_out[job]
        rows = np.flatnonzero(wanted)
        if not len(rows):
            continue
        content = _content(parsed, identity, route) if route.assembles else None
        widths = _widths(parsed, route, content)
        parts = [
            cut for part in _by_shard(parsed, route, rows, shards) for cut in _cut(*part, widths)
        ]
        jobs += [job] * len(parts)
        places += [shard for shard, _, _ in parts]
        picked = [chosen for _, _, chosen in parts]
        blobs += packer_.blobs(route.columns, picked, [home for _, home, _ in parts], content)
        for file in route.payloads.drain() if route.payloads is not None else ():
            jobs.append(file.address)
            places.append(0)
            blobs.append(file.body)
    if not jobs and latest is not None:
        jobs, places, blobs = [CLOCK], [0], [b""]
    moment = None if latest is None else min(latest, LATEST_MS) * 1000
    return pa.record_batch(
        [
            pa.array(jobs, pa.string()), pa.array(places, pa.int32()),
            pa.array([moment] * len(jobs), _TS), pa.array(blobs, pa.binary()),
        ],
        schema=_SCHEMA,
    )


def _latest_ms(parsed: Parsed) -> int | None:
    known = parsed.valid & parsed.block.has("ts_wall_ms")
    wall = parsed.block.number("ts_wall_ms")[known]
    return int(wall.max()) if len(wall) else None


def _by_shard(
    parsed: Parsed, route: Route, rows: Array, shards: int
) -> Iterator[tuple[int, Array, Array]]:
    """(shard, home flags, rows) of the records of a job; policies for all brokers go to all."""
    hashes = []
    for column in route.key:
        codes, values = parsed.block.text(PRINCIPAL if column == USER else column)
        if column == USER:
            values = user_of(values)
        # A null key column has code -1: the last place, whatever else the batch holds.
        hashes.append(np.append(hash_strings(values), NULL_HASH)[codes[rows]])
    home = shard_of(combine_hashes(*hashes), shards)
    order = np.argsort(home.astype(np.int16), kind="stable")
    bounds = np.searchsorted(home[order], np.arange(shards + 1))
    copies = _for_all(parsed, rows, route.everywhere)
    for shard in range(shards):
        mine = rows[order[bounds[shard] : bounds[shard + 1]]]
        flags = np.ones(len(mine), np.int8)
        foreign = rows[copies[home[copies] != shard]]
        if len(foreign):
            mine = np.concatenate([mine, foreign])
            flags = np.concatenate([flags, np.zeros(len(foreign), np.int8)])
        if len(mine):
            yield shard, flags, mine


def _cut(
    shard: int, home: Array, rows: Array, widths: Array | int
) -> Iterator[tuple[int, Array, Array]]:
    """The records of a shard in parts that each fit into one blob; `widths` are bytes a record."""
    if isinstance(widths, int):
        bounds = list(range(0, len(rows), max(BLOB_BYTES // widths, 1)))
    else:
        bounds, size = [0], 0
        for i, width in enumerate(widths[rows].tolist()):
            if i and size + width > BLOB_BYTES:
                bounds.append(i)
                size = 0
            size += width
    for begin, end in pairwise([*bounds, len(rows)]):
        yield shard, home[begin:end], rows[begin:end]


def _widths(parsed: Parsed, route: Route, content: _Content | None) -> Array | int:
    """Bytes that a record takes in a blob, at most: one number where no record is large."""
    block = parsed.block
    texts = [block.text(name) for name in route.columns if name in _TEXTS]
    lengths = [np.append(np.diff(offsets_of(plain(values))), 0) for _, values in texts]
    fixed = COLUMN_BYTES * (len(route.columns) + 4)
    most = fixed + TOPIC_BYTES + sum(int(length.max()) for length in lengths)
    inline = content is not None and bool(content.inline.any())
    if most <= SMALL_BYTES and not inline and block.marker_ids is None:
        return most
    widths = np.full(block.n, fixed + TOPIC_BYTES, np.int64)
    for (codes, _), length in zip(texts, lengths, strict=True):
        widths += length[codes]
    if content is not None and inline:
        widths += np.where(content.inline, block.digests[0], 0)
    if block.marker_ids is not None and "marker_ids" in route.columns:
        listed = pc.list_value_length(block.marker_ids).fill_null(0)
        widths += POSITION_BYTES * listed.to_numpy(zero_copy_only=False)
    return widths


def _for_all(parsed: Parsed, rows: Array, everywhere: tuple[str, ...]) -> Array:
    """Positions in `rows` of the records for every shard: of some kinds, and the policies that
    hold for every broker of their cluster."""
    kinds = parsed.kind[rows]
    found = np.flatnonzero(
        np.isin(kinds, [KIND_INDEX[kind] for kind in everywhere]) | (kinds == POLICY)
    )
    if not len(found):
        return found
    codes, values = parsed.block.text("broker")
    star = values.to_pylist()
    return np.array(
        [p for p in found
         if KINDS[kinds[p]].name in everywhere or star[codes[rows[p]]] == EVERY_BROKER], np.int64
    )


@dataclass(frozen=True)
class _Content:
    """Payloads of a block that travel: those that stay in the blob, and the rows of a file."""

    inline: Array
    """Per record, whether its payload goes into the blob (bool)."""
    file: str | None = None
    row: Array | None = None
    """Per record, the row of the file, -1 without."""


def _content(parsed: Parsed, identity: pa.RecordBatch, route: Route) -> _Content:
    """Which payloads of chunks go where; stages those that are too long for the blob."""
    block, store = parsed.block, route.payloads
    sizes, _ = block.digests
    chunk = (parsed.kind == DISPATCH) & (block.number("num_chunks") > 1) & parsed.valid
    chunk &= (sizes >= 0) & (block.payload is not None)
    if store is None:
        return _Content(chunk)
    chunk &= block.number("total_chunk_bytes") <= store.largest_bytes
    inline = chunk & (sizes <= store.inline_bytes)
    staged = np.flatnonzero(chunk & ~inline)
    if not len(staged):
        return _Content(inline)
    picked = pa.array(staged)
    codes, clusters = block.text("cluster")
    rows = pa.table({
        "cluster": clusters.take(pa.array(codes[staged])),
        "topic": parsed.topic.take(picked).dictionary_decode(),
        "ledger_id": pa.array(block.number("ledger_id")[staged]),
        "entry_id": pa.array(block.number("entry_id")[staged]),
        "payload": block.payload.take(picked) if block.payload is not None else None,
    })
    name = hashlib.sha1(usedforsecurity=False)
    for column in SOURCE_COLUMNS:
        name.update(json.dumps(identity.column(column).take(picked).to_pylist()).encode())
    place = np.full(block.n, -1, np.int64)
    place[staged] = np.arange(len(staged))
    return _Content(inline, store.stage(rows, name.digest()), place)


class _Packer:
    """Blobs of one block of parsed records."""

    def __init__(self, parsed: Parsed, identity: pa.RecordBatch, ingest_ms: int) -> None:
        self._parsed = parsed
        self._offset = identity.column("source_offset").to_numpy(zero_copy_only=False)
        partition = identity.column("source_partition").dictionary_encode()
        self._partition = (
            partition.indices.fill_null(-1).to_numpy(zero_copy_only=False), partition.dictionary
        )
        self._metadata = {INGEST_KEY: str(ingest_ms).encode()}
        self._texts: dict[str, tuple[Array, pa.StringArray, Array]] = {}

    def _text(self, name: str) -> tuple[Array, pa.StringArray, Array]:
        """Codes, values and a scratch array of a text column, made once per block."""
        if name not in self._texts:
            if name == "topic":
                topic = self._parsed.topic
                codes = topic.indices.fill_null(-1).to_numpy(zero_copy_only=False)
                values = topic.dictionary
            elif name == "source_partition":
                codes, values = self._partition
            else:
                codes, values = self._parsed.block.text("topic" if name == RAW_TOPIC else name)
            scratch = np.full(len(values) + 1, -1, np.int32)
            self._texts[name] = np.ascontiguousarray(codes, np.int32), values, scratch
        return self._texts[name]

    def _encoded(self, name: str, rows: Array, bounds: list[int]) -> list[pa.Array]:
        """A text column at these rows, cut: each part has only the values that it uses."""
        codes, values, scratch = self._text(name)
        picked = codes[rows]
        absent = picked < 0
        some_absent = bool(absent.any())
        parts: list[pa.Array] = []
        for begin, end in pairwise(bounds):
            out = np.empty(end - begin, np.int32)
            used = np.empty(min(len(values), end - begin) + 1, np.int32)
            count = _renumber(picked[begin:end], scratch, out, used)
            indices = pa.array(out, mask=absent[begin:end] if some_absent else None)
            parts.append(
                pa.DictionaryArray.from_arrays(indices, values.take(pa.array(used[:count])))
            )
        return parts

    def _integers(self, name: str, rows: Array, present: Array) -> pa.Array:
        """A column of numbers or flags at these rows; `present` has the bit sets of the rows."""
        absent = present >> np.uint64(INDEX[name]) & np.uint64(1) == 0
        if not absent.any():
            return pa.array(self._parsed.block.number(name)[rows])
        if absent.all():
            return pa.nulls(len(rows), pa.int64())
        return pa.array(self._parsed.block.number(name)[rows], mask=absent)

    def _digest(self, name: str, rows: Array) -> pa.Array:
        sizes, sums = self._parsed.block.digests
        absent = sizes[rows] < 0
        if absent.all():
            return pa.nulls(len(rows), pa.int64())
        return pa.array((sizes if name == DIGESTS[0] else sums)[rows], mask=absent)

    def _markers(self, rows: Array, bounds: list[int]) -> list[pa.Array]:
        """Lists of positions as text, one value per list."""
        lists = self._parsed.block.marker_ids
        if lists is None or lists.null_count == len(lists):
            whole = pa.nulls(len(rows), pa.string())
        else:
            whole = pc.binary_join(lists.take(pa.array(rows)), ",")
        return [whole.slice(b, e - b).dictionary_encode() for b, e in pairwise(bounds)]

    def _place(self, name: str, rows: Array, content: _Content | None) -> pa.Array:
        """File or row of staged payloads."""
        kind = pa.dictionary(pa.int32(), pa.string()) if name == PLACES[0] else pa.int64()
        if content is None or content.row is None:
            return pa.nulls(len(rows), kind)
        at = content.row[rows]
        if name == PLACES[1]:
            return pa.array(at, mask=at < 0)
        return pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(rows), np.int32), mask=at < 0), pa.array([content.file])
        )

    def _inline(self, rows: Array, content: _Content) -> pa.Array:
        payload = self._parsed.block.payload
        kept = content.inline[rows]
        if payload is None or not kept.any():
            return pa.nulls(len(rows), pa.binary())
        return payload.take(pa.array(rows, mask=~kept))

    def blobs(
        self, columns: tuple[str, ...], parts: list[Array], homes: list[Array],
        content: _Content | None = None,
    ) -> list[bytes]:
        """The columns of a job as bytes, one blob for the rows of each part.

        Columns are gathered for all parts at once and cut afterwards.
        """
        rows = np.concatenate(parts)
        bounds = [0, *np.cumsum([len(part) for part in parts]).tolist()]
        present = self._parsed.block.present[rows]
        names = [*columns, "source_partition", "source_offset", "home"]
        gathered: list[list[pa.Array]] = []
        if content is not None:
            names.append("payload")
        for name in names:
            if name == "source_partition" or name in _TEXTS:
                # A job with the column `partition` gets the topic as recorded.
                plain = name == "topic" and "partition" in columns
                gathered.append(self._encoded(RAW_TOPIC if plain else name, rows, bounds))
                continue
            if name == "marker_ids":
                gathered.append(self._markers(rows, bounds))
                continue
            if name == "event_type":
                whole = pa.array(self._parsed.kind[rows])
            elif name == "source_offset":
                whole = pa.array(self._offset[rows])
            elif name == "home":
                whole = pa.array(np.concatenate(homes))
            elif name in DIGESTS:
                whole = self._digest(name, rows)
            elif name in PLACES:
                whole = self._place(name, rows, content)
            elif name == "payload" and content is not None:
                whole = self._inline(rows, content)
            else:
                whole = self._integers(name, rows, present)
            gathered.append([whole.slice(b, e - b) for b, e in pairwise(bounds)])
        return [self._written(list(arrays), names) for arrays in zip(*gathered, strict=True)]

    def _written(self, arrays: list[pa.Array], names: list[str]) -> bytes:
        batch = pa.record_batch(arrays, names).replace_schema_metadata(self._metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return sink.getvalue().to_pybytes()
