"""The versions of a warehouse's contents, and whether this release reads them.

`<warehouse>/_weir/formats.json` has the release that last ran and the version of each job's state.
Only the same version of a state can continue. Tables have no version: a later release adds columns
and changes none, so every release reads the tables of every other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app import __version__
from app.archive_names import WRITES
from app.errors import UserError
from app.tables import manifest
from app.tables.definitions import TABLES
from app.tables.json_documents import Document
from app.tables.small_files import path_in
from state.jobs import DECLARED

if TYPE_CHECKING:
    from app.config.location import Location

NAME = "_weir/formats.json"


@dataclass(frozen=True)
class Formats:
    """The versions that the last run on a warehouse wrote."""

    weir: str
    """Release of Weir."""
    states: dict[str, int] = field(default_factory=dict)
    """Version of the state by job, of the jobs that have run."""


DOCUMENT: Document[Formats] = Document(
    Formats,
    (
        "put it back from a copy; without one remove it: states of other versions then fail when they "
        "are read"
    ),
    indent=1,
)


def load(warehouse: Location) -> Formats | None:
    """The formats of the warehouse; None before the first start."""
    return DOCUMENT.load(warehouse, NAME)


def check(warehouse: Location, jobs: Iterable[str]) -> None:
    """UserError if this release cannot continue these jobs on the warehouse."""
    kept, wanted = load(warehouse) or Formats(__version__), list(jobs)
    for job in wanted:
        version, reads = kept.states.get(job), DECLARED[job].state_version
        if version is not None and version != reads:
            raise UserError(
                f"{path_in(warehouse, NAME)}: the state of {job} has version {version}, written by"
                f" Weir {kept.weir}; this release ({__version__}) reads version {reads}\ncontinue with"
                f" Weir {kept.weir}, or begin {manifest.filled_anew(warehouse)}"
            )
    _refuse_changed_columns(warehouse, wanted)


def _refuse_changed_columns(warehouse: Location, jobs: Iterable[str]) -> None:
    """UserError for a column whose type differs from the one that this release writes.

    `app.run.integrity` reports tables that cannot be opened.
    """
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError

    names = [
        table.name
        for job in jobs
        for table in (*DECLARED[job].tables, *DECLARED[job].shadow_tables)
    ]
    for name in dict.fromkeys([*names, *WRITES]):
        path, options = path_in(warehouse, name), warehouse.storage()
        try:
            table = DeltaTable(path, storage_options=options)
        except DeltaError:  # also where there is no table yet
            continue
        there = {column.name: column.type for column in table.schema().fields}
        for wanted in Schema.from_arrow(TABLES[name].schema).fields:
            if there.get(wanted.name, wanted.type) != wanted.type:
                raise UserError(
                    f"warehouse: the column {wanted.name} of {path} has type "
                    f"{there[wanted.name]}; this release ({__version__}) writes {wanted.type}\n"
                    "continue with the Weir that wrote it, or begin "
                    + manifest.filled_anew(warehouse)
                )


def keep(warehouse: Location, jobs: Iterable[str]) -> None:
    """Record the versions that this release writes."""
    kept = load(warehouse)
    states = {**(kept.states if kept else {}), **{j: DECLARED[j].state_version for j in jobs}}
    wanted = Formats(__version__, states)
    if wanted != kept:
        DOCUMENT.keep(warehouse, NAME, wanted)
