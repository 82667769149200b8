"""A warehouse that a new one continues, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

from app.archive_names import ARCHIVE
from app.config.location import Location
from app.tables import checkpoints, manifest
from app.tables.archive_files import ArchiveWriter, write_files
from app.tables.definitions import TABLES
from app.tables.small_files import path_in
from tests.unit.run.maintenance.tables import rows

HISTORY_MS = 3_600_000
KAFKA = '{{"fleet":{{"0":{0},"1":{0}}}}}'
FILES = '{{"logOffset":{0}}}'
POLLS = '{"polls":{"kafka_groups.a":[7,8]},"files":[],"more":false}'


class Old:
    """A warehouse whose archive a query of jobs carries, without Spark."""

    def __init__(self, root: Path, line: str = KAFKA, waits: bool = False) -> None:
        self.location = Location(str(root))
        self._line = line
        manifest.claim(self.location, 2, 4)
        manifest.record(self.location, {"govern": ["rate_limits", ARCHIVE]})
        manifest.keep_topics(self.location, {"fleet": "id-1"})
        intervals = {"events": 60_000} if waits else {}
        checkpoints.identify(self.location, "govern", first_offset={"from": 1})
        self._writer = ArchiveWriter(self.location, ARCHIVE, HISTORY_MS, {"events": 0, **intervals})
        self._root = path_in(self.location, "events")

    def log(self, name: str, text: str) -> None:
        path = root_of(self.location) / checkpoints.FOLDER / "govern" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def plan(self, batch: int) -> None:
        about = json.dumps({"batchTimestampMs": 5, "batchWatermarkMs": 3})
        self.log(f"offsets/{batch}", "\n".join(["v1", about, self._line.format(batch), POLLS]))
        self.log(f"sources/0/{batch}", f'v1\n{{"path":"file:///in/{batch}","batchId":{batch}}}')

    def write(self, batch: int) -> None:
        made = [rows("events", range(3 * batch, 3 * batch + 3))]
        self._writer.prepare(["events"])
        self._writer.add("events", write_files(TABLES["events"], made, self._root, {}), batch)
        self._writer.settle(batch)

    def end(self, batch: int) -> None:
        self.log(f"commits/{batch}", "v1\n{}")

    def batches(self, count: int) -> None:
        for batch in range(count):
            self.plan(batch)
            self.write(batch)
            self.end(batch)


def root_of(location: Location) -> Path:
    return Path(location.uri)
