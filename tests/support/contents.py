"""What files hold, decompressed: for searches that must find nothing."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file below a folder: its path there, and its bytes with all that they decompress to,
    rows, statistics and footers of Parquet, and members of archives."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        content = path.read_bytes()
        if path.suffix == ".parquet":
            content += repr(pq.read_table(path, partitioning=None).to_pylist()).encode()
            content += repr(pq.read_metadata(path).to_dict()).encode()
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                content += b"".join(archive.read(name) for name in archive.namelist())
        yield str(path.relative_to(folder)), content
