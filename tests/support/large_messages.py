"""The answer expected of the large messages of a generated trace."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from benchmarks.generator.large_scripts import EVICTED, NAMES
from benchmarks.generator.trace import Trace


def expected(trace: Trace) -> Iterator[dict[str, Any]]:
    """By message and subscription, in order of start: what was planted and what becomes of it.

    Checksum and length are those of the whole payload, also where it is not assembled.
    """
    large = trace.large
    assert large is not None
    m, pairs, pool = large.messages, large.pairs, memoryview(trace.fleet.texts.payloads.data)
    payloads = [
        pool[begin : begin + size]
        for begin, size in zip(m.begins.tolist(), m.bytes.tolist(), strict=True)
    ]
    columns = (pairs.message, pairs.sub, pairs.kind, pairs.evicted, pairs.times)
    for i, sub, kind, evicted, times in zip(*(c.tolist() for c in columns), strict=True):
        producer, sequence = large.large.producers.names[m.producer[i]], int(m.sequence[i])
        yield {
            "topic": large.large.topics.names[m.topic[i]],
            "subscription": large.large.subs.names[sub],
            "uuid": f"{producer}-{sequence}",
            "producer_name": producer,
            "sequence_id": sequence,
            "num_chunks": int(m.chunks[i]),
            "planted": EVICTED if evicted else NAMES[kind],
            "assembled": times > 0,
            "times": times,
            "checksum": zlib.crc32(payloads[i]),
            "bytes": len(payloads[i]),
            "declared_bytes": int(m.declared[i]),
        }
