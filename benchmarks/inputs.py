"""The trace on disk, in the three forms that the benchmarks read."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from benchmarks.trace import Traffic


@dataclass(frozen=True)
class Input:
    """One trace: `count` files of `size` records, written once per run."""

    folder: Path
    traffic: Traffic
    count: int
    size: int
    per_trigger: int
    """Files of one micro-batch."""

    @property
    def events(self) -> int:
        """Records of all files."""
        return self.count * self.size

    @property
    def records(self) -> Path:
        """A Delta table of `value`, `source_partition`, `source_offset`; its files are Parquet."""
        return self.folder / "records"

    @property
    def lines(self) -> Path:
        """The same records as files of JSON lines."""
        return self.folder / "lines"

    @property
    def typed(self) -> Path:
        """The same records as Parquet files with the columns of the contract."""
        return self.folder / "typed"

    def write(self) -> Input:
        """Write the three forms, unless that has been done."""
        if self.folder.exists():
            return self
        hidden = self.folder.with_suffix(".unfinished")
        shutil.rmtree(hidden, ignore_errors=True)
        for name in ("lines", "typed"):
            (hidden / name).mkdir(parents=True)
        for number, part in enumerate(self.traffic.parts(self.count, self.size)):
            offset = np.arange(number * self.size, (number + 1) * self.size)
            identity = {
                "source_partition": pa.repeat(pa.scalar("0"), self.size),
                "source_offset": pa.array(offset),
            }
            records = pa.table({"value": part["value"], **identity})
            write_deltalake(str(hidden / "records"), records, mode="append")
            typed = part.drop(["value"])
            for name, column in identity.items():
                typed = typed.append_column(name, column)
            _aged(
                hidden / "typed" / f"{number:04d}.parquet",
                number,
                lambda path, rows=typed: pq.write_table(rows, path),
            )
            _aged(
                hidden / "lines" / f"{number:04d}.jsonl",
                number,
                lambda path, rows=part: path.write_bytes(
                    b"\n".join(rows["value"].to_pylist()) + b"\n"
                ),
            )
        hidden.rename(self.folder)
        return self


def _aged(path: Path, number: int, write: Any) -> None:
    """Write a file whose age tells its place: Spark takes the oldest first."""
    write(path)
    at = 1_700_000_000 + number
    os.utime(path, (at, at))
