"""Routing: packs valid records as Arrow blobs for the shards of the jobs that read them.

Runs in a Python worker, one Arrow batch of raw records at a time. A blob has the columns of a job
(`state.engine.blobs`), so 64-bit integers and nulls stay exact and a name crosses the shuffle once
per blob. Every row carries the latest wall time of the valid records of its batch, from which Spark
derives up to when it has seen the stream.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.contract.event_contract import DIGESTS, Parsed, parse_batch
from app.contract.parsing.layout import INDEX, TEXT_SLOTS, slot
from app.engine.archive_task import ArchiveTarget, ArchiveTask
from app.engine.blob_columns import LATER, NUMBER, OWN, TEXT, gather
from app.engine.messages import PACKED_SCHEMA, TS, MessageKind, control_row, encode
from app.engine.payloads import Payloads
from app.engine.ticks import ticks
from app.sources.batches import regrouped
from app.sources.clocks import LATEST_MS, ClockLimits, is_ahead, plan_of, waits
from state.engine.blobs import SOURCE_COLUMNS, TEXTS, with_payload, write
from state.engine.records import NULL, SHIPPED, STILL
from state.events import COMMON, EVERY_BROKER, KIND_INDEX, KINDS, OUT_OF_RANGE, SCHEMA
from state.jobs import readers
from udfs.arrow import bytes_of, integers, offsets_of
from udfs.hashing import NULL_HASH, combine_hashes, hash_strings, shard_of
from udfs.users import user_of

Array = np.ndarray
PRINCIPAL = "principal"
TOPIC = "topic"
FILLED = ("home", "ingest_ms")
"""Columns of a blob that are not columns of a block."""
POLICY = KIND_INDEX["policy"]
DISPATCH = KIND_INDEX["dispatch"]
PLACES = ("payload_file", "payload_row")
BLOB_BYTES = 3 << 19
"""Limit of one blob, which only a single record can exceed. Spark puts up to
`app.run.session.OPERATOR_ROWS` blobs into one Arrow vector, which holds less than 2 GiB."""


USER = "user"
"""Column of a key: the user of the record's principal."""


@dataclass(frozen=True)
class Route:
    """The records that a job takes: its columns, and the columns of its key.

    With `assembles` payloads of chunks travel as well; `payloads` stages the large ones.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    assembles: bool = False
    payloads: Payloads | None = None
    everywhere: tuple[str, ...] = ()
    """Kinds that go to every shard."""


def packer(
    routes: Mapping[str, Route],
    shards: int,
    limits: ClockLimits,
    archive: ArchiveTarget | None = None,
    labels: Mapping[str, Sequence[int]] | None = None,
    beside: bool = False,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: raw records in, rows of PACKED out.

    What depends on a time is judged by the plan of the micro-batch, which each batch carries. With
    `archive` the records are written to its
    files, too. `labels` of the shards of each job stand in rows for their numbers, see
    `app.engine.shard_labels`. Records `beside` a source that is streamed, those of polls, do not move
    the time up to which Spark has seen the stream, which ends with the source's last record; the
    committer is told how far they have come.
    """
    jobs = list(routes if archive is None else archive.blind_ms)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from ticks(list(routes), shards, labels)
        task = None if archive is None else ArchiveTask(archive)
        for batch in regrouped(batches):
            parsed = parse_batch(batch, jobs)
            wall = times_of(parsed)
            plan_ms = plan_of(batch)
            if task is not None:
                yield from task.add(parsed, batch)
            still = np.full(parsed.n, waits(batch))
            far = ahead = np.zeros(parsed.n, bool)
            if plan_ms is not None:
                ahead = is_ahead(wall, plan_ms, limits.clock_skew_ms)
                far = is_ahead(wall, plan_ms, limits.max_future_ms)
            clock_ms = latest(wall[~ahead])
            leads = clock_ms is None and bool(ahead.any())  # the feed as a whole is ahead
            if leads and (ahead & ~far).any():
                clock_ms = plan_ms
            if beside:
                if clock_ms is not None:
                    yield control_row(MessageKind.POLLED, str(clock_ms).encode())
                clock_ms = None
            packing = Packing(parsed, batch, routes, shards, plan_ms or 0, still | ahead, clock_ms)
            yield packing.rows(dict.fromkeys(routes, far) if far.any() else None, labels)
            if far.any():
                yield packing.refused(far, limits.max_future_ms)
            if leads and plan_ms is not None:
                yield control_row(MessageKind.AHEAD, str(wall.max() - plan_ms).encode())
        if task is not None:
            yield from task.end()

    return pack


def times_of(parsed: Parsed) -> Array:
    """The wall time of each valid record, NULL without one."""
    known = parsed.valid & parsed.block.has("ts_wall_ms")
    return np.where(known, parsed.block.number("ts_wall_ms"), NULL)


def needed(routes: Mapping[str, Route]) -> tuple[list[str], list[str]]:
    """Columns of `events` that these jobs need to pack records again, and the kinds that they read.
    The records have been validated before.
    """
    kinds = [kind for kind in KINDS if set(readers(kind.name)) & set(routes)]
    wanted = {*COMMON, "partition", "ts_wall_ms", "ts_mono_ns"}
    wanted |= {column for route in routes.values() for column in route.columns}
    wanted |= {"payload" for route in routes.values() if route.assembles}
    wanted |= {column for kind in kinds for column in kind.required}
    columns = [name for name in (*SCHEMA.names, *DIGESTS) if name in wanted]
    return [*columns, *SOURCE_COLUMNS, "ingest_ms"], [kind.name for kind in kinds]


def pack_parsed(
    parsed: Parsed,
    identity: pa.RecordBatch,
    routes: Mapping[str, Route],
    shards: int,
    ingest_ms: int,
) -> pa.RecordBatch:
    """Rows of PACKED for parsed records; `identity` has their source_partition and offset."""
    clock_ms = latest(times_of(parsed))
    return Packing(parsed, identity, routes, shards, ingest_ms, clock_ms=clock_ms).rows()


class Packing:
    """The records of one block on their way to the shards."""

    def __init__(
        self,
        parsed: Parsed,
        identity: pa.RecordBatch,
        routes: Mapping[str, Route],
        shards: int,
        ingest_ms: int,
        still: Array | None = None,
        clock_ms: int | None = None,
    ) -> None:
        """`identity` has the source_partition and offset of the parsed records. `still`: those that
        move no clock of their key (bool). `clock_ms`: the time to which `rows` move the stream's.
        """
        self._parsed, self._identity, self._routes = parsed, identity, routes
        self._shards, self._ingest_ms = shards, ingest_ms
        self._clock_ms = clock_ms
        self._packer = _Packer(parsed, identity, ingest_ms, still)

    def refused(self, far: Array, max_future_ms: int) -> pa.RecordBatch:
        """A row of PACKED with rows of `quarantine` for records too far after the plan (bool), one
        for each job that reads them."""
        parsed, parts = self._parsed, []
        for job in self._routes:
            rows = pa.array(np.flatnonzero(parsed.job_ok[job] & far))
            columns: dict[str, pa.Array] = {
                name: _texts(parsed.table.column(name).take(rows))
                for name in ("source_feed", "cluster", "broker")
            } | {name: parsed.table.column(name).take(rows) for name in ("seq", "ts_wall_ms")}
            ahead = (pc.subtract(columns["ts_wall_ms"], self._ingest_ms)).to_pylist()
            parts.append(
                pa.table(
                    {
                        "reason_code": pa.array([OUT_OF_RANGE] * len(rows), pa.string()),
                        "detail": pa.array(
                            [
                                f"ts_wall_ms is {ms} ms after the plan of its batch; max_future_ms is"
                                f" {max_future_ms}"
                                for ms in ahead
                            ],
                            pa.string(),
                        ),
                        "job": pa.array([job] * len(rows), pa.string()),
                        **{
                            name: columns[name]
                            for name in ("source_feed", "cluster", "broker", "seq", "ts_wall_ms")
                        },
                        "source_partition": _texts(
                            self._identity.column("source_partition").take(rows)
                        ),
                        "source_offset": self._identity.column("source_offset").take(rows),
                        "raw": pa.nulls(len(rows), pa.string()),
                        "ingest_ms": pa.array([self._ingest_ms] * len(rows), pa.int64()),
                    }
                )
            )
        return control_row(MessageKind.REFUSED, encode(pa.concat_tables(parts)))

    def rows(
        self,
        left_out: Mapping[str, Array] | None = None,
        labels: Mapping[str, Sequence[int]] | None = None,
    ) -> pa.RecordBatch:
        """Rows of PACKED; `left_out`: by job, records that it does not get (bool). `labels` as for
        `packer`.
        """
        jobs: list[str] = []
        places: list[int] = []
        blobs: list[pa.Array] = []
        for job, route in self._routes.items():
            wanted = self._parsed.job_ok[job]
            if left_out and job in left_out:
                wanted = wanted & ~left_out[job]
            for parts, blob in self._blobs(route, np.flatnonzero(wanted)):
                jobs += [job] * len(parts)
                label = range(self._shards) if labels is None else labels[job]
                places += [label[part.shard] for part in parts]
                blobs.append(blob)
        kinds = [MessageKind.DATA] * len(jobs)
        for route in self._routes.values():
            files = route.payloads.drain() if route.payloads is not None else []
            kinds += [MessageKind.FILE] * len(files)
            blobs.append(pa.array(files, pa.binary()))
        clock_ms = self._clock_ms
        if not kinds and clock_ms is not None:
            kinds, blobs = [MessageKind.CLOCK], [pa.array([b""])]
        controls = len(kinds) - len(jobs)
        moment = None if clock_ms is None else min(clock_ms, LATEST_MS) * 1000
        return pa.record_batch(
            [
                pa.array([*jobs, *[""] * controls], pa.string()),
                pa.array([*places, *[0] * controls], pa.int32()),
                pa.array(kinds, pa.int8()),
                pa.array([moment] * len(kinds), TS),
                pa.concat_arrays(blobs) if blobs else pa.array([], pa.binary()),
            ],
            schema=PACKED_SCHEMA,
        )

    def by_slice(
        self, slices: Array, left_out: Mapping[str, Array]
    ) -> Iterator[tuple[int, str, int, pa.Buffer]]:
        """The slice, job and shard of each blob, and the blob; `slices`: per record its slice, -1
        for a record that is left out. `left_out` as for `rows`.
        """
        inside = slices >= 0
        for job, route in self._routes.items():
            wanted = self._parsed.job_ok[job] & inside
            if job in left_out:
                wanted &= ~left_out[job]
            for parts, blobs in self._blobs(route, np.flatnonzero(wanted), slices):
                for part, blob in zip(parts, blobs, strict=True):
                    yield part.slice, job, part.shard, blob.as_buffer()

    def _blobs(
        self, route: Route, rows: Array, slices: Array | None = None
    ) -> Iterator[tuple[list[_Part], pa.Array]]:
        """Parts of some records for a job, and the blob of each; large ones are cut."""
        if not len(rows):
            return
        content = _content(self._parsed, self._identity, route) if route.assembles else None
        parts = list(_by_shard(self._parsed, route, rows, self._shards, slices))
        while parts:
            found = self._packer.blobs(route.columns, parts, content)
            sizes = pc.binary_length(found).to_numpy()
            large = (sizes > BLOB_BYTES) & np.array([len(part.rows) > 1 for part in parts])
            yield (
                [part for part, again in zip(parts, large, strict=True) if not again],
                found.filter(pa.array(~large)) if large.any() else found,
            )
            parts = [
                half
                for part, again in zip(parts, large, strict=True)
                if again
                for half in part.halves()
            ]


def latest(wall: Array) -> int | None:
    """The latest of some times, NULL being none."""
    most = int(wall.max(initial=NULL))
    return None if most == NULL else most


def _texts(column: Any) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    return column.cast(pa.string())


@dataclass(frozen=True)
class _Part:
    """Records of a slice for a shard of a job: their rows, and whether the shard is the home of
    each.
    """

    slice: int
    shard: int
    home: Array
    rows: Array

    def halves(self) -> tuple[_Part, _Part]:
        """The part, cut in two."""
        half = len(self.rows) // 2
        return (
            _Part(self.slice, self.shard, self.home[:half], self.rows[:half]),
            _Part(self.slice, self.shard, self.home[half:], self.rows[half:]),
        )


def _by_shard(
    parsed: Parsed,
    route: Route,
    rows: Array,
    shards: int,
    slices: Array | None,
) -> Iterator[_Part]:
    """The records of a job by slice and shard; policies for all brokers go to all shards."""
    hashes = []
    for column in route.key:
        if column == TOPIC:
            codes, values = integers(parsed.topic.indices, -1), parsed.topic.dictionary
        else:
            codes, values = parsed.block.text(PRINCIPAL if column == USER else column)
        if column == USER:
            values = user_of(values)
        # A null key column has code -1: the last place, whatever else the batch holds.
        hashes.append(np.append(hash_strings(values), NULL_HASH)[codes[rows]])
    home = shard_of(combine_hashes(*hashes), shards)
    copies = _for_all(parsed, rows, route.everywhere)
    slice_of = np.zeros(len(rows), np.int64) if slices is None else slices[rows]
    first, last = int(slice_of.min()), int(slice_of.max())
    group = (slice_of - first) * shards + home
    count = (last - first + 1) * shards
    # Numpy sorts 16 bits by radix.
    order = np.argsort(group.astype(np.int16) if count < 1 << 15 else group, kind="stable")
    ordered = group[order]
    there = ordered[np.flatnonzero(np.diff(ordered, prepend=-1))]
    if len(copies):
        begins = (slice_of[copies] - first) * shards
        there = np.union1d(there, begins[:, None] + np.arange(shards))
    begin_of, end_of = (np.searchsorted(ordered, there, side) for side in ("left", "right"))
    for place, begin, end in zip(there.tolist(), begin_of, end_of, strict=True):
        number, shard = first + place // shards, place % shards
        mine = rows[order[begin:end]]
        flags = np.ones(len(mine), np.int8)
        foreign = rows[copies[(home[copies] != shard) & (slice_of[copies] == number)]]
        if len(foreign):
            mine = np.concatenate([mine, foreign])
            flags = np.concatenate([flags, np.zeros(len(foreign), np.int8)])
        if len(mine):
            yield _Part(number, shard, flags, mine)


def _for_all(parsed: Parsed, rows: Array, everywhere: tuple[str, ...]) -> Array:
    """Positions in `rows` of the records for every shard: records of some kinds, and policies for
    every broker of a cluster.
    """
    kinds = parsed.kind[rows]
    found = np.flatnonzero(
        np.isin(kinds, [KIND_INDEX[kind] for kind in everywhere]) | (kinds == POLICY)
    )
    if not len(found):
        return found
    codes, values = parsed.block.text("broker")
    star = values.to_pylist()
    return np.array(
        [
            p
            for p in found
            if KINDS[kinds[p]].name in everywhere or star[codes[rows[p]]] == EVERY_BROKER
        ],
        np.int64,
    )


@dataclass(frozen=True)
class _Content:
    """The payloads of a block that travel: inside the blob, or as rows of a file."""

    inline: Array
    """Per record, whether its payload goes into the blob (bool)."""
    file: str | None = None
    row: Array | None = None
    """Per record, the row of the file; -1 without one."""


def _content(parsed: Parsed, identity: pa.RecordBatch, route: Route) -> _Content:
    """Decide where payloads of chunks travel, and stage those that are too long for the blob."""
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
    rows = pa.table(
        {
            "cluster": clusters.take(pa.array(codes[staged])),
            "topic": parsed.topic.take(picked).dictionary_decode(),
            "ledger_id": pa.array(block.number("ledger_id")[staged]),
            "entry_id": pa.array(block.number("entry_id")[staged]),
            "payload": block.payload.take(picked) if block.payload is not None else None,
        }
    )
    name = hashlib.sha1(usedforsecurity=False)
    for column in SOURCE_COLUMNS:
        name.update(json.dumps(identity.column(column).take(picked).to_pylist()).encode())
    place = np.full(block.n, -1, np.int64)
    place[staged] = np.arange(len(staged))
    return _Content(inline, store.stage(rows, name.digest()), place)


class _Packer:
    def __init__(
        self, parsed: Parsed, identity: pa.RecordBatch, ingest_ms: int, still: Array | None
    ) -> None:
        self._parsed, self._ingest_ms = parsed, ingest_ms
        self._still = None if still is None or not still.any() else still * STILL
        self._names: list[pa.StringArray] = []
        self._known = 0
        self._every: tuple[Array, Array] | None = None
        self._slots = np.zeros(TEXT_SLOTS, np.int64)
        for place, values in enumerate(parsed.block.dictionaries):
            self._slots[place] = self._add(values)
        partition = identity.column("source_partition").dictionary_encode()
        base: dict[str, Array] = {
            "event_type": parsed.kind.astype(np.int64),
            "has_seq": parsed.block.has("seq").astype(np.int64),
            "source_offset": identity.column("source_offset").to_numpy(zero_copy_only=False),
            "source_partition": self._numbered(partition),
            "topic": self._numbered(parsed.topic),
        }
        self._place = {name: i for i, name in enumerate(base)}
        self._base = np.stack(list(base.values()))
        self._marker_ids: Array | None = None

    def _add(self, values: pa.StringArray) -> int:
        """Add the distinct names of a column; returns the position of the first."""
        first = self._known
        self._names.append(values)
        self._known += len(values)
        self._every = None
        return first

    def _numbered(self, column: pa.DictionaryArray) -> Array:
        """Positions of a text column's values among all names, -1 null."""
        first = self._add(column.dictionary)
        codes = integers(column.indices, -1)
        return np.where(codes >= 0, codes + first, -1)

    def _all_names(self) -> tuple[Array, Array]:
        """The bytes of all names, and where each begins."""
        if self._every is None:
            every = pa.concat_arrays(self._names)
            self._every = bytes_of(every), offsets_of(every).astype(np.int64)
        return self._every

    def _markers(self) -> Array:
        """Lists of positions, one name per list."""
        lists = self._parsed.block.marker_ids
        if lists is None or lists.null_count == len(lists):
            return np.full(self._parsed.n, -1, np.int64)
        return self._numbered(pc.binary_join(lists, ",").dictionary_encode())

    def _column(self, name: str, content: _Content | None) -> Array | None:
        """A column that only one job has and that differs from the block's (per record)."""
        if name == "marker_ids":
            if self._marker_ids is None:
                self._marker_ids = self._markers()
            return self._marker_ids
        if name in DIGESTS:
            sizes, sums = self._parsed.block.digests
            return np.where(sizes < 0, NULL, sizes if name == DIGESTS[0] else sums)
        if name in PLACES:
            if content is None or content.row is None:
                return np.full(self._parsed.n, -1 if name == PLACES[0] else NULL, np.int64)
            absent = content.row < 0
            if name == PLACES[1]:
                return np.where(absent, NULL, content.row)
            return np.where(absent, -1, self._add(pa.array([content.file], pa.string())))
        return None

    def blobs(
        self, columns: tuple[str, ...], parts: list[_Part], content: _Content | None = None
    ) -> pa.Array:
        """The columns of a job as blobs (binary), one for each part.

        Columns are gathered for all parts at once and cut as they are written.
        """
        rows = np.concatenate([part.rows for part in parts])
        bounds = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part.rows) for part in parts], out=bounds[1:])
        names = (*columns, *SHIPPED)
        block = self._parsed.block
        own: list[Array] = []
        sources = np.zeros((len(names), 3), np.int64)
        for source, name in zip(sources, names, strict=True):
            # A job with the column `partition` gets the topic as recorded.
            if name in self._place and not (name == "topic" and "partition" in columns):
                source[:2] = OWN, self._place[name]
            elif (found := self._column(name, content)) is not None:
                source[:2] = OWN, len(self._base) + len(own)
                own.append(found)
            elif name in FILLED:
                source[0] = LATER
            elif name in TEXTS:
                source[:] = TEXT, slot(name), self._slots[slot(name)]
            else:
                source[:] = NUMBER, slot(name), INDEX[name]
        values = np.empty((len(names), len(rows)), np.int64)
        every_own = np.concatenate([self._base, np.stack(own)]) if own else self._base
        gather(rows, sources, block.numbers, block.codes, block.present, every_own, values)
        home = np.concatenate([part.home for part in parts])
        if self._still is not None:
            home = home + self._still[rows]
        values[names.index("home")] = home
        values[names.index("ingest_ms")] = self._ingest_ms
        data, ends = write(names, values, bounds, *self._all_names())
        offsets = np.zeros(len(ends) + 1, np.int32)
        offsets[1:] = ends
        found = pa.BinaryArray.from_buffers(
            pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        if content is None or block.payload is None or not content.inline[rows].any():
            return found
        return pa.array(
            [
                with_payload(
                    blob, block.payload.take(pa.array(part.rows, mask=~content.inline[part.rows]))
                )
                for blob, part in zip(found.to_pylist(), parts, strict=True)
            ],
            pa.binary(),
        )
