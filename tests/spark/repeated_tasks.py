"""Tasks that Spark repeats: prints what they read, how often each ran and what a run counts, as JSON.

The first task behind the shuffle removes its files, as the loss of an executor does: Spark repeats
every task in front of it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkstemp

import pyarrow as pa
from pyspark import TaskContext

from app.config.settings import load_settings
from app.run.progress import records
from app.run.session import build_session
from app.sources.raw import Raw
from tests.support.waiting import PATIENCE_S


def main(base: Path) -> None:
    folder, runs, lost = base / "in", base / "runs", base / "lost"
    folder.mkdir()
    runs.mkdir()
    for part in range(3):
        (folder / f"{part}.txt").write_text("a record\n" * 1_000)
    spark = build_session(load_settings(overrides={"partitions": 2}), "weir-tests")
    jvm = spark._jvm
    assert jvm is not None
    disks = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirs()
    places = [Path(str(disk)) for disk in disks]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mkstemp(prefix=f"{TaskContext.get().partitionId()}-", dir=runs)  # type: ignore[union-attr]
        for batch in batches:
            yield batch.select(["value"])

    def lose(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not lost.exists():
            for file in [file for place in places for file in place.glob("*/shuffle_*")]:
                file.unlink(missing_ok=True)
            lost.touch()

    frame = Raw(spark.readStream.text(str(folder))).through(read, "value string")
    behind = frame.repartition(8).mapInArrow(lose, "value string")  # type: ignore[arg-type]
    rows: list[int] = []
    query = (
        behind.writeStream.foreachBatch(lambda part, _: rows.append(part.toArrow().num_rows))
        .option("checkpointLocation", str(base / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    tasks = Counter(path.name.split("-")[0] for path in runs.iterdir())
    counted = sum(records(progress) for progress in query.recentProgress)
    print(json.dumps({"rows": rows, "tasks": tasks, "counted": counted}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
