"""The manifest of a warehouse: values that its first start chose.

State is kept by shard and partition, so `<warehouse>/_weir/manifest.json` records both numbers and
the version of the layout; only `reshard` changes them. It also has the jobs of each query that has
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
    from app.config.settings import Settings

LAYOUT_VERSION = 2
"""In version 2 a topic belongs to the shard of its full name, in version 1 to that of its name as
records spell it.
"""
READABLE = (1, 2)
"""Layouts that this release continues; `reshard` converts an older one."""
RESHARD = f"{PROGRAM} reshard --config FILE"
NAME = "_weir/manifest.json"


@dataclass(frozen=True)
class SavedStates:
    """Saved states of a query, with which a replay can begin."""

    file: str
    """Path below the warehouse."""
    query: str
    jobs: list[str]
    batch: int
    """The last batch that they contain."""
    at_ms: int
    """Latest event time that had moved the stream's clock by then (ms since the epoch)."""
    saved_ms: int


@dataclass(frozen=True)
class Manifest:
    """Values chosen by the first start of a warehouse or by `reshard`."""

    layout_version: int
    partitions: int
    shards: int
    created_ms: int
    queries: dict[str, list[str]] | None = None
    """Jobs by the query that runs them; None in a manifest of an earlier version."""
    moving: list[str] | None = None
    """Queries whose new checkpoints are complete and not yet in their places."""
    states: list[SavedStates] | None = None
    """Saved states, oldest first; None without any."""
    topics: dict[str, str] | None = None
    """Ids of the Kafka topics that the warehouse has begun to read, by name."""
    id: str | None = None
    """Identity of the warehouse, which its checkpoints name; None in a manifest of an earlier
    version.
    """


@dataclass(frozen=True)
class _Layout:
    """What a manifest of every layout has."""

    layout_version: int


DOCUMENT: Document[Manifest] = Document(Manifest, indent=1)
_LAYOUT: Document[_Layout] = Document(_Layout)


def load(settings: Settings) -> Manifest | None:
    """The manifest of the warehouse; None before the first start."""
    layout = _LAYOUT.load(settings, NAME)
    if layout is not None and layout.layout_version not in READABLE:
        raise UserError(
            f"{path(settings)}: the warehouse has layout version {layout.layout_version}\n"
            f"this version of Weir reads layout version {LAYOUT_VERSION}; "
            "take another warehouse, or the Weir that wrote this one"
        )
    return DOCUMENT.load(settings, NAME)


def check(settings: Settings, partitions: int | None = None) -> Manifest | None:
    """The manifest; UserError for settings that do not fit it.

    `partitions` is the number that the session would use; without it the configured number counts.
    """
    manifest = load(settings)
    if manifest is None:
        return None
    if manifest.moving is not None:
        raise UserError(
            f"warehouse: a reshard of {settings.warehouse} was interrupted\n{RESHARD} finishes it"
        )
    wanted = {"partitions": partitions or settings.partitions, "shards": settings.shards}
    for key, value in wanted.items():
        kept = getattr(manifest, key)
        if value is not None and value != kept:
            raise UserError(
                f"{key}: {value} does not fit the warehouse, whose state is in {kept} {key} "
                f"({path(settings)})\n{RESHARD} moves it; or set {key} to {kept}"
            )
    return manifest


def claim(settings: Settings, partitions: int) -> Manifest:
    """The manifest of the warehouse; the first start writes it."""
    manifest = check(settings, partitions)
    if manifest is None:
        now_ms = time.time_ns() // 1_000_000
        shards = settings.shards_for(partitions)
        manifest = Manifest(LAYOUT_VERSION, partitions, shards, now_ms, id=str(uuid.uuid4()))
        DOCUMENT.keep(settings, NAME, manifest)
    return manifest


def as_spelled(settings: Settings) -> bool:
    """Whether a topic belongs to the shard of its name as records spell it."""
    manifest = load(settings)
    return manifest is not None and manifest.layout_version < LAYOUT_VERSION


def followed(settings: Settings) -> Settings:
    """The settings with the numbers of the manifest, if there is one."""
    manifest = load(settings)
    if manifest is None:
        return settings
    numbers = {"partitions": manifest.partitions, "shards": manifest.shards}
    return settings.model_copy(update=numbers)


def renumber(settings: Settings, shards: int, partitions: int, moving: Sequence[str]) -> None:
    """Record new numbers, for which the checkpoints of these queries are complete."""
    DOCUMENT.keep(
        settings,
        NAME,
        replace(
            _there(settings),
            layout_version=LAYOUT_VERSION,
            shards=shards,
            partitions=partitions,
            moving=list(moving),
        ),
    )


def moved(settings: Settings) -> None:
    """Record that every checkpoint is in its place."""
    DOCUMENT.keep(settings, NAME, replace(_there(settings), moving=None))


def keep_states(settings: Settings, saved: SavedStates, most: int) -> list[str]:
    """Record saved states. Of their query only the newest `most` stay; returns the files of the
    others.
    """
    there = _there(settings)
    kept = [one for one in there.states or () if one.file != saved.file] + [saved]
    mine = [one for one in kept if one.query == saved.query]
    gone = {one.file for one in mine[: max(len(mine) - most, 0)]}
    states = [one for one in kept if one.file not in gone]
    DOCUMENT.keep(settings, NAME, replace(there, states=states))
    return sorted(gone)


def keep_topics(settings: Settings, topics: dict[str, str]) -> None:
    """Record the ids of the Kafka topics that the warehouse reads."""
    there = _there(settings)
    if topics != (there.topics or {}):
        DOCUMENT.keep(settings, NAME, replace(there, topics=topics))


def _there(settings: Settings) -> Manifest:
    manifest = load(settings)
    if manifest is None:
        raise UserError(
            f"{path(settings)}: is missing, so the warehouse has no state\n"
            "run begins one; if it was lost, put it back from a copy"
        )
    return manifest


def record(settings: Settings, queries: Mapping[str, Sequence[str]]) -> None:
    """Record the jobs of each query."""
    manifest = load(settings)
    wanted = {name: list(jobs) for name, jobs in queries.items()}
    if manifest is not None and manifest.queries != wanted:
        DOCUMENT.keep(settings, NAME, replace(manifest, queries=wanted))


def identify(settings: Settings, identity: str) -> None:
    """Record the identity of a warehouse whose manifest has none."""
    DOCUMENT.keep(settings, NAME, replace(_there(settings), id=identity))


def path(settings: Settings) -> str:
    """Path of the manifest."""
    return path_in(settings, NAME)
