"""What a run stores: bytes by event of the archive and of the jobs' tables, and commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from deltalake import DeltaTable

from app.config.settings import load_settings
from app.run.service import work
from app.tables.definitions import TABLES
from benchmarks.generator.generate_command import generate
from benchmarks.result import Result
from benchmarks.stream import Bench

ARCHIVE = ("events", "quarantine")


def run(bench: Bench) -> Result:
    """The demo's fleet: every job and the archive."""
    events = 20_000 if bench.small else 300_000
    result = Result("storage", events, bench.small)
    out = bench.folder / "demo"
    with redirect_stdout(StringIO()):
        generate("demo", events, 7, out)
        work(load_settings(out / "weir.yaml"), available_now=True, interactive=True, drain=True)
    sizes = dict(_tables(out / "warehouse"))
    archived = sizes["events"].to_pyarrow_dataset().count_rows()
    names = [name for name in sizes if name not in ARCHIVE]
    batches = 1 + max(
        int(path.name)
        for path in (out / "warehouse/_weir/checkpoints").glob("*/commits/*")
        if path.name.isdigit()
    )
    result.add("archive", _bytes(sizes["events"]) / archived, "bytes per event")
    result.add(
        "tables of the jobs",
        sum(_bytes(sizes[name]) for name in names) / archived,
        "bytes per event",
        note=f"{len(names)} tables of the demo's fleet",
    )
    result.add(
        "commits",
        sum(table.version() for table in sizes.values()) / batches,
        "per micro-batch",
        note=f"{batches} micro-batches",
    )
    return result


def _tables(warehouse: Path) -> Iterator[tuple[str, DeltaTable]]:
    for name in TABLES:
        if (warehouse / name / "_delta_log").is_dir():
            yield name, DeltaTable(warehouse / name)


def _bytes(table: DeltaTable) -> int:
    return sum(table.get_add_actions(flatten=True).column("size_bytes").to_pylist())
