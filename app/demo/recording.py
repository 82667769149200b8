"""A recording: its events, its configuration, what to say of it, and what the broker counted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table as Grid

from app import folders
from app.config.reading import read_yaml
from app.config.shipped import Place, shipped
from app.errors import UserError
from app.show.report.printed import show
from app.terminal.program import PROGRAM

SHIPPED = shipped("recordings")
PACKED, PARTS, NUMBERS = "events.parquet", ".ndjson.gz", "numbers.json"
COMMENT = f"# What demo ran: {PROGRAM} run --config FILE --available-now --drain\n"


@dataclass(frozen=True)
class Compared:
    """What the broker or an application counted, and what the tables have."""

    scenario: str
    what: str
    counted_by: str
    """The broker's name of the number, or `applications`."""
    counted: Any
    computed: Any

    @property
    def equal(self) -> bool:
        """Whether both are the same."""
        return bool(self.counted == self.computed)


class Recording:
    """A folder below `configs/recordings`: `weir.yaml` with the files that it names, `says.txt`,
    `events.parquet` or parts as they were written, and `numbers.json` if the broker counted any.
    """

    def __init__(self, name: str) -> None:
        """UserError for a name that is none."""
        if name not in names():
            raise UserError(
                f"--scenario {name}: is not a scenario of demo\nallowed: {', '.join(names())}"
            )
        self._files: dict[str, Place] = {file.name: file for file in (SHIPPED / name).iterdir()}
        self.says = self._files["says.txt"].read_text(encoding="utf-8").rstrip()

    def files(self) -> Iterator[tuple[str, int, bytes]]:
        """Name, time (ms since the epoch) and content of each file of events, in the order in which
        they were written; those of a real broker are a second apart."""
        if PACKED in self._files:
            from app.demo import recorded_table

            packed = self._files[PACKED].read_bytes()
            for number, (ms, content) in enumerate(recorded_table.files(packed)):
                yield f"events-{number:05d}.jsonl", ms, content
        else:
            parts = sorted(name for name in self._files if name.endswith(PARTS))
            for second, name in enumerate(parts):
                yield name, 1000 * second, self._files[name].read_bytes()

    def copy_to(self, out: Path) -> Path:
        """Write events and configuration below a folder; the path of the configuration."""
        events = out.absolute() / "events"
        events.mkdir(parents=True)
        for name, ms, content in self.files():
            folders.put(events / name, content)
            os.utime(events / name, (ms / 1000, ms / 1000))
        found: dict[str, Any] = read_yaml(self._files["weir.yaml"], dict)
        for name in found.get("policy_files", ()):
            folders.put(out / name, self._files[name].read_bytes())
        found["warehouse"], found["source"]["path"] = str(out.absolute() / "warehouse"), str(events)
        folders.put(out / "weir.yaml", COMMENT + yaml.safe_dump(found, sort_keys=False))
        return out / "weir.yaml"

    def compared(self, warehouse: str) -> list[Compared]:
        """Every number of the broker's beside Weir's of the same."""
        from app.read.relations import Warehouse, connect

        if NUMBERS not in self._files:
            return []
        numbers = json.loads(self._files[NUMBERS].read_text(encoding="utf-8"))["numbers"]
        with connect(Warehouse(warehouse)) as tables:
            return [
                Compared(
                    number["scenario"],
                    number["what"],
                    number["counted_by"],
                    number["value"],
                    _value(tables.execute(number["sql"]).fetchall()),
                )
                for number in numbers
            ]


def names() -> list[str]:
    """Names of the recordings that come with Weir."""
    return sorted(folder.name for folder in SHIPPED.iterdir() if folder.is_dir())


def _value(rows: list[tuple[Any, ...]]) -> Any:
    """The one value of an answer."""
    ((value,),) = rows
    return value


def render(found: list[Compared], console: Console) -> None:
    """Print how many numbers agree, and those that do not."""
    equal = sum(each.equal for each in found)
    show(
        console,
        f"Of {len(found)} numbers that the broker and its clients counted, Weir has "
        f"computed {equal} from the events alone.",
    )
    if equal < len(found):
        grid = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for name in ("counted otherwise", "by"):
            grid.add_column(name, overflow="fold")
        for name in ("there", "Weir"):
            grid.add_column(name, justify="right", no_wrap=True)
        for each in found:
            if not each.equal:
                grid.add_row(
                    each.what, each.counted_by, _short(each.counted), _short(each.computed)
                )
        console.print()
        console.print(grid)


def _short(value: Any) -> str:
    """A number as it is, a list by its length."""
    return f"{len(value)} values" if isinstance(value, list) else str(value)
