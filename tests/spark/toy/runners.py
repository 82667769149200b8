"""Runs `message_counts` in the core, as a stream and in batch, and the commands and pages that its room
has a part in: `runners.py FOLDER` writes what they give into the folder.

It is started with a copy of the sources on PYTHONPATH that has the job, and a process for all of it.
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from app import cli
from app.config.settings import Settings, load_settings
from app.engine.operators import operators
from app.engine.routing import packer
from app.errors import UserError
from app.run.service import run
from app.sources.clocks import ClockLimits
from app.tables.definitions import TABLES
from app.tables.shape import shaped
from app.whatif.replay import replayed
from state.engine.reach import Reach
from tests.pages import events_page, metrics_page, queries_page, tables_page

JOB = "message_counts"
TABLE = "topic_message_counts"
START_MS = 1_767_621_600_000
FILES, PER_FILE = 6, 100


def records() -> list[dict[str, Any]]:
    """Two minutes of entries in three topics of two clusters, up to 400 ms out of order."""
    rng = random.Random(7)
    found = []
    for i in range(FILES * PER_FILE):
        at_ms = START_MS + 200 * i
        found.append(
            (
                at_ms + rng.randint(0, 400),
                {
                    "event_type": "entry_added",
                    "source_feed": "contract",
                    "cluster": f"c{i % 2}",
                    "broker": "b1",
                    "seq": i,
                    "ts_mono_ns": at_ms * 1_000_000,
                    "ts_wall_ms": at_ms,
                    "topic": f"persistent://t/ns/{rng.randint(0, 2)}",
                    "ledger_id": 1,
                    "entry_id": i,
                    "entry_bytes": rng.randint(1, 999),
                    "num_messages": rng.choice([None, 1, 7]),
                },
            )
        )
    return [record for _, record in sorted(found, key=lambda pair: pair[0])]


def write(folder: Path, found: list[dict[str, Any]]) -> None:
    """Files that the stream takes one by one, in this order."""
    folder.mkdir()
    for number in range(FILES):
        path = folder / f"{number}.jsonl"
        part = found[number * PER_FILE : (number + 1) * PER_FILE]
        path.write_text("".join(json.dumps(record) + "\n" for record in part), "utf-8")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def core(settings: Settings, lines: list[bytes]) -> pa.Table:
    """Rows of the core for all records at once, then with the stream's clock at its end."""
    operator = operators(settings, [JOB])[JOB]
    batch = pa.record_batch(
        {
            "value": pa.array(lines, pa.binary()),
            "source_partition": ["0"] * len(lines),
            "source_offset": pa.array(range(len(lines)), pa.int64()),
        }
    )
    packed = pa.Table.from_batches(packer({JOB: operator.route}, 1, ClockLimits())(iter([batch])))
    latest = max(json.loads(line)["ts_wall_ms"] for line in lines)
    blobs = [row["blob"] for row in packed.to_pylist() if row["job"] == JOB]
    first = operator.job.step(None, blobs, Reach(0))
    last = operator.job.step(first.state, [], Reach(settings.window_end_ms(latest)))
    found = [step.tables[TABLE] for step in (first, last) if TABLE in step.tables]
    return pa.concat_tables([shaped(t, TABLES[TABLE], operator.constants) for t in found])


def shown(rows: pa.Table) -> list[str]:
    """Whole rows as text, sorted."""
    return sorted(repr(sorted(row.items())) for row in rows.to_pylist())


def answered(*words: str) -> str:
    """The output of a command."""
    with redirect_stdout(io.StringIO()) as out:
        code = cli.main([*words])
    assert code == 0, (words, code, out.getvalue())
    return out.getvalue()


def answers(warehouse: str, topic: str) -> dict[str, str]:
    """The outputs of commands on the warehouse."""
    here = ("--warehouse", warehouse)
    return {
        "query": answered("query", "most-messages", "--json", *here),
        "metrics": answered("metrics", "--once", *here),
        "rules": answered("alerts", "rules", "--json"),
        "report": answered("report", *here, "--json"),
        "explain": answered("explain", "topic", topic, *here, "--json"),
        "quality": answered("quality", "--table", TABLE, *here, "--json"),
    }


def declared() -> dict[str, Any]:
    """What follows from the declaration and the room, without a run."""
    refused = ""
    try:
        load_settings(None, {JOB: {"count": "bytes"}})
    except UserError as error:
        refused = str(error)
    pages = {
        "events": events_page.render(),
        "metrics": metrics_page.render(),
        "queries": queries_page.render(),
        "tables": tables_page.render(),
    }
    return {
        "switches": Settings().switches(JOB),
        "jobs": Settings().jobs,
        "refused": refused,
        "pages": pages,
    }


def main(folder: Path) -> dict[str, Any]:
    """The rows by runner, the records, and what commands and pages say."""
    added = records()
    write(folder / "events", added)
    settings = load_settings(
        None,
        {
            "warehouse": str(folder / "warehouse"),
            "partitions": 2,
            "shards": 3,
            "alerts": None,
            "source": {
                "format": "files",
                "path": str(folder / "events"),
                "options": {"maxFilesPerTrigger": "1"},
            },
            "queries": [[JOB]],
            "stats_window_ms": "10s",
            JOB: {"count": "messages"},
        },
    )
    lines = [json.dumps(record).encode() for record in added]
    assert run(settings, available_now=True, drain=True) == 0
    found = {
        "core": core(settings, lines),
        "stream": DeltaTable(f"{settings.warehouse}/{TABLE}").to_pyarrow_table(),
        "replay": replayed(settings, [JOB], drain=True)[TABLE],
        "slices": replayed(settings, [JOB], 10, drain=True)[TABLE],
    }
    counts = [
        [r["cluster"], r["topic"], r["window_start_ms"], r["messages"], r["bytes"]]
        for r in found["core"].to_pylist()
    ]
    rows = {name: shown(rows) for name, rows in found.items()}
    totals: Counter[str] = Counter()
    for _, topic, _, messages, _ in counts:
        totals[topic] += messages
    most = min(totals, key=lambda topic: (-totals[topic], topic))
    return {
        "rows": rows,
        "counts": counts,
        "added": added,
        "declared": declared(),
        "answers": answers(settings.warehouse, most),
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "found.json").write_text(json.dumps(main(place)), "utf-8")
