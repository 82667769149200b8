"""A recorded run of a real broker: its events, its configuration, and what the broker counted."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from app import folders
from app.config.reading import read_yaml
from app.config.shipped import Place, shipped
from app.plain_text import lines_of
from app.show.report.printed import show

SHIPPED = shipped("recordings")
PARTS = ".ndjson.gz"


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
    """A folder below `configs/recordings`."""

    def __init__(self, name: str) -> None:
        self._place: Place = SHIPPED / name
        found = json.loads((self._place / "numbers.json").read_text(encoding="utf-8"))
        self.broker: str = found["broker"]
        self.seconds: int = found["seconds"]
        self.events: int = found["events"]
        self._numbers: list[dict[str, Any]] = found["numbers"]

    def configuration(self) -> dict[str, Any]:
        """What the run needs beside source and warehouse."""
        found: dict[str, Any] = read_yaml(self._place / "weir.yaml", dict)
        return found

    def parts(self) -> list[Place]:
        """The files of events, in the order in which they were written."""
        found: list[Place] = [f for f in self._place.iterdir() if f.name.endswith(PARTS)]
        return sorted(found, key=lambda file: file.name)

    def records(self) -> Iterator[dict[str, Any]]:
        """The events, in the order in which they were written."""
        for part in self.parts():
            for line in lines_of(gzip.decompress(part.read_bytes())):
                yield json.loads(line)

    def copy_to(self, folder: Path) -> None:
        """The files of events as a source reads them: older ones have older times."""
        folder.mkdir(parents=True)
        for second, part in enumerate(self.parts()):
            path = folder / part.name
            folders.put(path, part.read_bytes())
            os.utime(path, (second, second))

    def compared(self, warehouse: str) -> list[Compared]:
        """Every number of the broker's beside Weir's of the same."""
        from app.read.relations import Warehouse, connect

        with connect(Warehouse(warehouse)) as tables:
            return [
                Compared(
                    number["scenario"],
                    number["what"],
                    number["counted_by"],
                    number["value"],
                    _value(tables.execute(number["sql"]).fetchall()),
                )
                for number in self._numbers
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
