"""Small files of a warehouse beside its tables, local or in an object store."""

from __future__ import annotations

import errno
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from app import folders
from app.errors import UserError
from app.tables import durable
from app.tables.object_store import file_system

if TYPE_CHECKING:
    from app.config.location import Location

_SCHEME = re.compile(r"^([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
RECONCILE = "_weir/reconcile.json"
"""What the comparison with the brokers has read of them."""
PAGES = "_weir/quality"
"""The folder of the audits' pages."""
MAKE_ROOM = "make room and start again: the run continues where it was"
MAKE_WRITABLE = "make it writable and start again: the run continues where it was"
PUT_BACK = "put it back from a copy of the same time as the tables, or take another warehouse"
_REMEDIES = {errno.ENOSPC: MAKE_ROOM, errno.EDQUOT: MAKE_ROOM, errno.EROFS: MAKE_WRITABLE}


def local_path(warehouse: str) -> Path | None:
    """The warehouse as a local folder; None if it is in an object store."""
    if warehouse.startswith("file:"):
        return Path("/" + warehouse.removeprefix("file:").lstrip("/"))
    return None if _SCHEME.match(warehouse) else Path(warehouse)


def path_in(warehouse: Location, name: str) -> str:
    """Path of a table or file of the warehouse, for Spark and delta-rs."""
    local = local_path(warehouse.uri)
    root = warehouse.uri.rstrip("/") if local is None else str(local.absolute())
    return f"{root}/{name}"


class Damaged(UserError):
    """A file that belongs to a warehouse is gone, or cannot be what was written."""

    def __init__(self, path: str, what: str, remedy: str = PUT_BACK) -> None:
        super().__init__(f"warehouse: {path} {what}\n{remedy}")


def read_text(warehouse: Location, name: str, remedy: str = PUT_BACK) -> str | None:
    """Text of the file `name` below the warehouse; None if there is none. Damaged, with the remedy,
    for what is no text.
    """
    local = local_path(warehouse.uri)
    try:
        if local is not None:
            file = local / name
            return file.read_text("utf-8")
        return _ObjectStore(warehouse).read(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (IsADirectoryError, PermissionError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise Damaged(path_in(warehouse, name), f"is damaged ({reason})", remedy) from None


def names(warehouse: Location, folder: str) -> list[str]:
    """Names of the files in a folder below the warehouse; none if the folder is missing."""
    local = local_path(warehouse.uri)
    if local is not None:
        return folders.names(local / folder)
    return sorted(_ObjectStore(warehouse).names(folder))


def write_text(warehouse: Location, name: str, text: str) -> None:
    """Write the file `name` below the warehouse, whole or not at all."""
    local = local_path(warehouse.uri)
    if local is None:
        _ObjectStore(warehouse).write(name, text)
        return
    file = local / name
    try:
        with durable.replacing(file) as unfinished:
            unfinished.write_text(text, "utf-8")
    except OSError as error:
        raise UserError(
            f"warehouse: cannot write {file}: {error.strerror}\n"
            + _REMEDIES.get(error.errno or 0, "choose a folder that this user may write")
        ) from error


def remove(warehouse: Location, name: str) -> None:
    """Remove the file `name` below the warehouse, if it is there."""
    with suppress(FileNotFoundError):
        file_system(path_in(warehouse, "").rstrip("/"), warehouse.storage()).delete_file(name)


class _ObjectStore:
    """Files of an object store, opened with the options of the tables."""

    def __init__(self, warehouse: Location) -> None:
        self._system = file_system(warehouse.uri, warehouse.storage())

    def read(self, name: str) -> str:
        with self._system.open_input_file(name) as file:
            return bytes(file.read()).decode()

    def names(self, folder: str) -> list[str]:
        import pyarrow.fs as pafs

        found = self._system.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        return [info.base_name for info in found]

    def write(self, name: str, text: str) -> None:
        with self._system.open_output_stream(name) as file:
            file.write(text.encode())
