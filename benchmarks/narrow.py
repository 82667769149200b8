"""The other way to the operator: narrow columns through Spark instead of packed blobs.

Spark parses (`from_json`) and picks the columns that rate_limits reads; integers are filled with
a sentinel, since pandas would make doubles of a column with a null; rows are grouped by (job,
shard) and reach the operator as pandas columns. From there on it is the same core and the same
commit. The contract's rules are not applied, which is in this way's favour.

Names travel as text, or as 64-bit hashes. A core that gets hashes cannot name a topic in its
answers, so hashes are no complete way: they show what the best of this kind could reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from app.engine.govern import Committer
from app.engine.messages import ANSWERS
from app.engine.operators import operators
from app.engine.step import STATE, stepper
from app.tables.commit import Writer
from app.tables.small_files import path_in
from benchmarks import floors
from benchmarks.inputs import Input
from benchmarks.stream import END, Bench, Speed, finished
from benchmarks.trace import COLUMNS as CARRIED
from state.engine import mono
from state.engine.blobs import TEXTS
from state.engine.names import Names
from state.engine.records import NULL, SHIPPED, Records, concat, empty
from state.rate_limits.shard import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

    from app.config.settings import Settings

JOB = "rate_limits"


def speed(bench: Bench, trace: Input, hashed: bool) -> Speed:
    """Govern with this transport, from JSON to committed tables."""
    name = f"narrow-{'hashes' if hashed else 'names'}"
    settings = bench.settings(name, {"format": "files", "path": "in"})
    raw = (
        bench.spark.readStream.schema("value binary, source_partition string, source_offset long")
        .option("maxFilesPerTrigger", trace.per_trigger)
        .parquet(str(trace.records))
    )
    schema = floors.schema_of((*CARRIED, "subscription", "consumer"))
    event = F.from_json(F.col("value").cast("string"), schema).alias("e")
    rows = raw.select(event, "source_partition", "source_offset")
    rows = rows.select("e.*", "source_partition", "source_offset")
    writer = Writer(settings.location, name, settings.maintenance.history_ms)
    committer = Committer(writer, operators(settings, [JOB]))
    committer.prepare()
    query = (
        judged(settings, rows, hashed)
        .writeStream.queryName(name)
        .outputMode("append")
        .option("checkpointLocation", path_in(settings.location, f"_weir/checkpoints/{name}"))
        .trigger(**END)
        .foreachBatch(committer)
        .start()
    )
    return finished(query)


def judged(settings: Settings, rows: DataFrame, hashed: bool) -> DataFrame:
    """The answers of rate_limits over parsed records."""
    idle_ms = settings.idle_advance_ms
    timed = rows.withColumn("ts", F.timestamp_millis("ts_wall_ms"))
    marked = floors.narrow(timed, hashed, "ts").withColumn("job", F.lit(JOB))
    marked = marked.withWatermark("ts", f"{idle_ms} milliseconds").select(
        "job",
        "shard",
        *COLUMNS,
        "source_partition",
        "source_offset",
        F.lit(None)
        .cast("timestamp")
        .alias("watermark", metadata={"spark.watermarkDelayMs": idle_ms}),
    )
    return marked.groupBy("job", "shard").applyInPandasWithState(
        _stepper(operators(settings, [JOB])),
        ANSWERS,
        STATE,
        "append",
        GroupStateTimeout.EventTimeTimeout,
    )


def _stepper(group: dict[str, Any]) -> Callable[..., Iterator[pd.DataFrame]]:
    """The product's operator, whose core gets frames where it expects blobs."""
    packed = stepper(group)

    def step(
        key: tuple[str, int], frames: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        with patch.object(mono, "read_blobs", _records):
            yield from packed(key, ({"blob": [f]} for f in frames), state)

    return step


def _records(frames: Sequence[pd.DataFrame], names: Names, columns: tuple[str, ...]) -> Records:
    """As `read_blobs`."""
    return concat([_of_frame(f, names, columns) for f in frames]) if frames else empty(columns)


def _of_frame(frame: pd.DataFrame, names: Names, columns: tuple[str, ...]) -> Records:
    import pandas as pd

    data = np.zeros((len(columns) + len(SHIPPED) + 1, len(frame)), np.int64)
    records = Records((*columns, *SHIPPED, "held"), data)
    for name in (*columns, "source_partition", "source_offset"):
        values = frame[name]
        if name in TEXTS:
            codes, distinct = pd.factorize(values)
            texts = distinct if values.dtype == object else [f"{h:x}" for h in distinct]
            ids = names.intern(pa.array([t or None for t in texts], pa.string()))
            records[name] = ids[codes]
        else:
            records[name] = values.to_numpy(np.int64)
    records["has_seq"] = records["seq"] != NULL
    records["home"] = 1
    return records
