"""Checks that a warehouse can be written, and appends results of commands to its tables."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app import folders
from app.archive_names import ARCHIVE
from app.errors import UserError, reason
from app.tables import checkpoints
from app.tables.checkpoints import FOLDER
from app.tables.creation import create
from app.tables.definitions import TABLES
from app.tables.small_files import local_path, path_in

if TYPE_CHECKING:
    import pyarrow as pa

    from app.config.location import Location

ROOM_BYTES = 1 << 20
"""Of a commit and more: libraries print their own stack traces where a disk becomes full."""


def obstacle(warehouse: Location, *names: str) -> UserError | None:
    """Why the warehouse, or one of the folders `names` below it, cannot be written; None if all can
    be. A name may be a pattern. An object store is not checked: only a write shows it.
    """
    root = local_path(warehouse.uri)
    for folder in (
        ()
        if root is None
        else (root, *(f for name in names for f in folders.matching(root, name) or [root / name]))
    ):
        refused = _refusal(folder.absolute())
        if refused is not None:
            return refused
    return None


def require(warehouse: Location) -> None:
    """UserError if the warehouse, or a folder of its tables or queries, cannot be written; each may be
    a disk of its own.

    An archive that has begun may be unwritable: a run does not stop for it (`app.run.service`).
    """
    begun = checkpoints.begun(warehouse, ARCHIVE)
    tables = [
        name
        for table in TABLES
        for name in (table, f"{table}/_delta_log")
        if not (begun and table == "events")
    ]
    queries = f"{FOLDER}/*/", f"{FOLDER}/*/*/"
    if (refused := obstacle(warehouse, "_weir", FOLDER, *queries, *tables)) is not None:
        raise refused


def append(warehouse: Location, name: str, rows: pa.Table, what: str = "the results") -> None:
    """Append rows to a table, also during a run. If that is not possible, a UserError reports that
    `what` is printed only.
    """
    from deltalake import write_deltalake
    from deltalake.exceptions import DeltaError

    refused = obstacle(warehouse, name, f"{name}/_delta_log")
    if refused is not None:
        raise UserError(f"{refused}; {what} are not kept")
    options: dict[str, Any] = {"storage_options": warehouse.storage()}
    try:
        create(warehouse, name)
        write_deltalake(
            path_in(warehouse, name),
            rows,
            mode="append",
            # Columns that an older Weir did not have.
            schema_mode="merge",
            **options,
        )
    except (DeltaError, OSError) as error:
        raise UserError(
            f"{path_in(warehouse, name)}: cannot be written ({reason(error)}); {what} are not kept"
        ) from error


def _refusal(folder: Path) -> UserError | None:
    """Why no file can be created in a folder, or in its nearest existing parent."""
    there = folder
    try:
        while not there.exists():
            there = there.parent
        if not there.is_dir():
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with tempfile.TemporaryFile(dir=there, buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)  # a full disk takes names alone
            return None
    except OSError as error:
        return UserError(f"warehouse: {there} cannot be written ({error.strerror or error})")
