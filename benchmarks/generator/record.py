"""`python -m benchmarks record`: the recording that `demo` plays, made anew.

It is the trace of the scenario `demo` with EVENTS and SEED. A test holds the recording to what is
generated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.config.shipped import ROOT
from benchmarks.generator.generated_configuration import POLICIES, document
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import Trace, plan_trace
from benchmarks.generator.trace_rows import WRITTEN
from benchmarks.generator.write import write_policies, write_yaml

FOLDER = ROOT / "configs" / "recordings" / "demo"
EVENTS = 300_000
SEED = 7
NAMES = [name for name, _ in WRITTEN if name != "tail"]
INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
TOGETHER = ("broker", "topic", "at")
"""What rows are ordered by in the file: two thirds of the bytes that the order of arrival takes."""
COMMENT = "# What a run over this recording needs. Made by `python -m benchmarks record`."


def planned() -> Trace:
    """The trace of the recording."""
    return plan_trace(load_scenario("demo"), EVENTS, SEED)


def record(folder: Path, trace: Trace) -> None:
    """Write a recording of a trace to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    events = pack(trace, folder / "events.parquet")
    write_policies(trace, folder / POLICIES)
    write_yaml(folder / "weir.yaml", COMMENT, document(trace, "warehouse", "events"))
    (folder / "says.txt").write_text(f"{says(trace, events)}\n", encoding="utf-8")


def says(trace: Trace, events: int) -> str:
    """What there is in a trace, in a sentence."""
    spec, kafka = trace.scenario, ""
    if spec.kafka is not None:
        clients = () if spec.kafka.clients is None else spec.kafka.clients.users
        users = {*spec.kafka.users, *clients}
        kafka = f"; {spec.kafka.brokers} Kafka brokers with {len(users)} users"
    return (
        f"{events:,} events: {spec.duration_s // 60} minutes of {spec.fleet.brokers} "
        f"brokers, {spec.fleet.topics} topics of {len(spec.fleet.tenants)} tenants{kafka}."
    )


def pack(trace: Trace, path: Path) -> int:
    """Write the events of a trace as `app.demo.recorded_table` reads them; how many there are."""
    found = list(_records(trace))
    columns: dict[str, pa.Array] = {
        "at": pa.array(np.arange(len(found))),
        "written_ms": pa.array([ms for ms, _, _ in found], pa.int64()),
    }
    for name in NAMES:
        texts = [record.get(name) for _, record, _ in found]
        given = [text for text in texts if text is not None]
        if given and all(INTEGER.fullmatch(text) for text in given):
            columns[name] = pa.array([None if t is None else int(t) for t in texts], pa.int64())
        elif given:
            columns[name] = pa.array(texts, pa.string())
    columns["line"] = pa.array([line for _, _, line in found], pa.binary())
    table = pa.table(columns).sort_by([(name, "ascending") for name in TOGETHER])
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=22,
        row_group_size=len(found),
        data_page_size=1 << 26,
        dictionary_pagesize_limit=1 << 26,
        use_dictionary=[name for name in table.column_names if name not in integers],
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        write_statistics=False,
    )
    return len(found)


def _records(trace: Trace) -> Iterator[tuple[int, dict[str, str], bytes | None]]:
    """Of each record the time of its file, and the JSON texts of its values, or else its line."""
    decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    for part in trace.slices():
        for line, is_malformed in zip(part.lines(), part.malformed.tolist(), strict=True):
            texts = {} if is_malformed else {k: bytes(v).decode() for k, v in decode(line).items()}
            yield part.wall_ms, texts, line if is_malformed else None
