"""The demo scenario: generated once below the warehouse, then read like any files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from app.demo.generator.scenario import load_scenario
from app.demo.generator.trace import plan_trace
from app.demo.generator.write import write_files, write_policies
from app.errors import UserError
from app.sources.files import line_files
from app.sources.raw import Raw

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamReader

    from app.config.location import Location
    from app.config.source import SourceSettings


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for a warehouse in an object store: the demo's input is local files."""
    if "://" in warehouse.uri:
        raise UserError(
            f"source.format: demo writes local files, which cannot go below {warehouse.uri}\n"
            "take a folder as warehouse, or one of the formats files, kafka, delta"
        )


def read(reader: DataStreamReader, feed: SourceSettings, warehouse: Location) -> Raw:
    """The lines of the scenario."""
    folder = generated(feed, warehouse) / "events"
    return line_files.read_path(reader, str(folder), feed)


def generated(feed: SourceSettings, warehouse: Location) -> Path:
    """The folder of the trace: `events/` and `policies.yaml`, created at the first call."""
    root = Path(feed.path) if feed.path else Path(warehouse.uri) / "_weir" / "demo"
    folder = root.absolute() / f"seed-{feed.seed}-events-{feed.events}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")  # of a run that was interrupted
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        trace = plan_trace(load_scenario("demo"), feed.events, feed.seed)
        write_files(trace, unfinished / "events")
        write_policies(trace, unfinished / "policies.yaml")
        unfinished.rename(folder)
    return folder
