"""One run at a time for the queries of a warehouse."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import IO, TYPE_CHECKING

from app import folders
from app.errors import UserError
from app.tables import lease
from app.tables.reach import by_delta_rs
from app.tables.small_files import local_path

if TYPE_CHECKING:
    from app.config.location import Location

FOLDER = "_weir/locks"
MAINTENANCE = "_weir/maintenance.lock"
RECONCILIATION = "_weir/reconcile.lock"
FORECAST = "_weir/forecast.lock"


class Busy(UserError):
    """Another process holds the lock."""


@contextmanager
def only_run(warehouse: Location, queries: Sequence[str]) -> Iterator[None]:
    """Hold the locks of these queries; UserError if another process holds one.

    A lock ends with its process, however that ends. An object store has leases in place of locks;
    where only Spark reaches the warehouse, its checkpoint rejects the second writer later.
    """
    root = local_path(warehouse.uri)
    with ExitStack() as held:
        if root is None and by_delta_rs(warehouse.uri):
            held.enter_context(lease.held(warehouse, queries))
        for folder, name in () if root is None else product([root / FOLDER], queries):
            folder.mkdir(parents=True, exist_ok=True)
            file = held.enter_context((folder / name).open("w"))
            if not _taken(file):
                raise _refusal(warehouse.uri, name)
        yield


def refuse(warehouse: str, queries: Sequence[str] | None = None) -> None:
    """UserError if another process holds one of the queries (None: any) of a warehouse.

    Writes nothing and keeps no lock.
    """
    root = local_path(warehouse)
    for path in () if root is None else folders.matching(root, f"{FOLDER}/*"):
        if (queries is None or path.name in queries) and not _free(path):
            raise _refusal(warehouse, path.name)


def at_work(warehouse: Location) -> bool:
    """Whether a run holds a lock of the warehouse."""
    try:
        refuse(warehouse.uri)
    except UserError:
        return True
    return False


def only_maintenance(warehouse: Location) -> AbstractContextManager[None]:
    """Hold the lock of the warehouse's maintenance; Busy if another process holds it.

    In an object store two processes may do the same work; each commit is accepted from one.
    """
    return _only(warehouse, MAINTENANCE, f"maintain: another process maintains {warehouse.uri}")


def only_reconciliation(warehouse: Location) -> AbstractContextManager[None]:
    """Hold the lock of the warehouse's comparisons; Busy if another process holds it. An object
    store has no locks: only one process may compare there.
    """
    return _only(
        warehouse,
        RECONCILIATION,
        f"reconcile: another process compares {warehouse.uri} with its brokers",
    )


def only_forecast(warehouse: Location) -> AbstractContextManager[None]:
    """Hold the lock of the warehouse's forecasts; Busy if another process holds it. An object store
    has no locks: only one process may forecast there.
    """
    return _only(
        warehouse, FORECAST, f"forecast: another process makes forecasts of {warehouse.uri}"
    )


@contextmanager
def _only(warehouse: Location, name: str, what: str) -> Iterator[None]:
    root = local_path(warehouse.uri)
    with ExitStack() as held:
        if root is not None:
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if not _taken(held.enter_context(file.open("w"))):
                raise Busy(f"{what}\nit does the same work: wait for its end")
        yield


def _free(path: Path) -> bool:
    try:
        with path.open() as file:
            return _taken(file)
    except OSError:
        return True  # whether the file can be opened is seen when the lock is taken


def _taken(file: IO[str]) -> bool:
    """Try to lock an open file; returns whether it is locked now. The lock ends with the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _refusal(warehouse: str, query: str) -> UserError:
    return UserError(
        f"warehouse: another run works on {warehouse} (query {query})\n"
        "stop it first, or take another warehouse"
    )
