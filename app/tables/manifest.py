"""The manifest of a warehouse: values that its first start chose.

State is kept by shard and partition, so `<warehouse>/_weir/manifest.json` records both numbers and
the version of the layout, which do not change. It also has the jobs of each query that has
begun (`app.engine.assignment`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from app.errors import UserError
from app.tables.json_documents import Document
from app.tables.small_files import path_in
from app.terminal.program import PROGRAM

if TYPE_CHECKING:
    from app.config.location import Location

LAYOUT_VERSION = 3
NAME = "_weir/manifest.json"


@dataclass(frozen=True)
class Manifest:
    """Values chosen by the first start of a warehouse."""

    layout_version: int
    partitions: int
    shards: int
    created_ms: int
    id: str
    """Identity of the warehouse, which its checkpoints name."""
    queries: dict[str, list[str]] | None = None
    """Jobs by the query that runs them; None before a query has begun."""
    topics: dict[str, str] | None = None
    """Ids of the Kafka topics that the warehouse has begun to read, by name."""


@dataclass(frozen=True)
class _Layout:
    """What a manifest of every layout has."""

    layout_version: int
    queries: dict[str, list[str]] | None = None
    topics: dict[str, str] | None = None


DOCUMENT: Document[Manifest] = Document(Manifest, indent=1)
_LAYOUT: Document[_Layout] = Document(_Layout)


def load(warehouse: Location) -> Manifest | None:
    """The manifest of the warehouse; None before the first start."""
    layout = of_any_layout(warehouse).layout_version
    if layout != LAYOUT_VERSION:
        raise UserError(
            f"{path(warehouse)}: the warehouse has layout version {layout}, and this Weir reads layout"
            f" version {LAYOUT_VERSION}\ncontinue with the Weir that wrote it, or begin"
            f" {filled_anew(warehouse)}"
        )
    return DOCUMENT.load(warehouse, NAME)


def of_any_layout(warehouse: Location) -> _Layout:
    """What the manifest of any layout says of queries and topics; nothing without a manifest."""
    return _LAYOUT.load(warehouse, NAME) or _Layout(LAYOUT_VERSION)


def check(warehouse: Location, partitions: int | None, shards: int | None) -> Manifest | None:
    """The manifest; UserError for numbers that do not fit it (None: any does)."""
    manifest = load(warehouse)
    if manifest is None:
        return None
    for key, value in (("partitions", partitions), ("shards", shards)):
        kept = getattr(manifest, key)
        if value is not None and value != kept:
            raise UserError(
                f"{key}: {value} does not fit the warehouse, whose state is in {kept} {key} "
                f"({path(warehouse)})\nset {key} to {kept}, or begin {filled_anew(warehouse)}"
            )
    return manifest


def claim(warehouse: Location, partitions: int, shards: int | None) -> Manifest:
    """The manifest of the warehouse; the first start writes it, without `shards` with the number
    that follows from the partitions.
    """
    from app.config.settings import shards_for

    manifest = check(warehouse, partitions, shards)
    if manifest is None:
        now_ms = time.time_ns() // 1_000_000
        shards = shards_for(partitions, shards)
        manifest = Manifest(LAYOUT_VERSION, partitions, shards, now_ms, str(uuid.uuid4()))
        DOCUMENT.keep(warehouse, NAME, manifest)
    return manifest


def numbers(warehouse: Location) -> dict[str, int]:
    """The settings that the manifest decides, with its values; empty before the first start."""
    manifest = load(warehouse)
    if manifest is None:
        return {}
    return {"partitions": manifest.partitions, "shards": manifest.shards}


def keep_topics(warehouse: Location, topics: dict[str, str]) -> None:
    """Record the ids of the Kafka topics that the warehouse reads."""
    there = _there(warehouse)
    if topics != (there.topics or {}):
        DOCUMENT.keep(warehouse, NAME, replace(there, topics=topics))


def _there(warehouse: Location) -> Manifest:
    manifest = load(warehouse)
    if manifest is None:
        raise UserError(
            f"{path(warehouse)}: is missing, so the warehouse has no state\n"
            "run begins one; if it was lost, put it back from a copy"
        )
    return manifest


def record(warehouse: Location, queries: Mapping[str, Sequence[str]]) -> None:
    """Record the jobs of each query."""
    manifest = load(warehouse)
    wanted = {name: list(jobs) for name, jobs in queries.items()}
    if manifest is not None and manifest.queries != wanted:
        DOCUMENT.keep(warehouse, NAME, replace(manifest, queries=wanted))


def filled_anew(warehouse: Location) -> str:
    """What takes the place of a warehouse whose states a run cannot use, and how."""
    uri = warehouse.uri.rstrip("/")
    return (
        "a new warehouse that continues this one: its archive, then the source from where that ends\n"
        f"{PROGRAM} run --config weir.yaml --warehouse {uri}-new --from-archive {uri}"
    )


def path(warehouse: Location) -> str:
    """Path of the manifest."""
    return path_in(warehouse, NAME)
