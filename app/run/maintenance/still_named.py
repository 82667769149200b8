"""What may still hold the names that `forget` has replaced in the tables, and for how long."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app import folders
from app.run.maintenance.names import Name
from app.tables.small_files import local_path
from app.tables.small_files import names as file_names

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings

MINUTE_MS = 60_000
_REMEMBERED = "until the broker no longer has them and a poll has seen that"
_POLLED = "until a poll removes the file, keep_ms after it was written"
SEARCHED = {
    "_weir/checkpoints/*/weir-policies.json": (
        "as long as the checkpoint: documents that the query has judged by"
    ),
    "_weir/configuration.json": "until the next run writes its configuration",
    "_weir/manifest.json": "as long as the warehouse: topics that it reads",
    "_weir/reconcile.json": "until two more comparisons",
    "_weir/polls/*/memory.json": _REMEMBERED,
    "_weir/polls/*/polls/*.jsonl*": _POLLED,
    "_weir/checkpoints/*/offsets/*": "as long as the topic is read, then until newer batches replace it",
    "_weir/checkpoints/*/sources/0/*": "as long as the checkpoint: files that it has read",
}
"""Files of text that are searched, and how long they keep what they hold."""


def still_named(
    settings: Settings, names: Sequence[Name], erase: bool, unread: list[str]
) -> list[str]:
    """Places that hold the names after the command, or may, one line each. `unread` gets a line for
    each file that could not be searched.
    """
    return [
        *([] if erase else [_history(settings.maintenance.history_ms)]),
        *_searched(settings.location, names, unread),
        *_not_searched(settings.location, settings.idle_state_ms),
    ]


def _history(history_ms: int) -> str:
    return (
        "history of the tables (--as-of): until maintain removes it, in"
        f" {history_ms // MINUTE_MS} min or later"
    )


def _searched(warehouse: Location, names: Sequence[Name], unread: list[str]) -> Iterator[str]:
    root = local_path(warehouse.uri)
    if root is None:
        yield (
            "policies (weir-policies.json), offsets and names of files in _weir/checkpoints, "
            "topics in _weir/manifest.json: as long as the warehouse; not searched there"
        )
        yield "_weir/configuration.json: until the next run writes its configuration; not searched"
        return
    for pattern, until in SEARCHED.items():
        found = []
        for path in folders.matching(root, pattern):
            try:
                if _holds(path, names):
                    found.append(path)
            except FileNotFoundError:
                continue
            except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "damaged"
                place = path.relative_to(root)
                unread.append(f"{place}: cannot be searched ({why}); may have the names {until}")
        if found:
            more = f" and {len(found) - 1} more" if found[1:] else ""
            yield f"{found[0].relative_to(root)}{more}: {until}"


def _holds(path: Path, names: Sequence[Name]) -> bool:
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    text = content.decode("utf-8")
    return any(name.replaced(text) != text for name in names)


def _not_searched(warehouse: Location, idle_state_ms: int) -> Iterator[str]:
    """States and rows whose bytes are not searched."""
    yield (
        f"state of the queries (_weir/checkpoints): until {idle_state_ms // MINUTE_MS} min of event"
        " time after the last record of the name; rows that they write until then have it"
    )
    yield (
        "rows that wait for a common commit (_weir/checkpoints): until the run, or its next start,"
        " commits them; forget again then"
    )
    yield "chunk_payloads, and payloads in other tables: not searched"
    if "replay.json" in file_names(warehouse, "_weir"):
        yield "states of a replay (_weir/replay): as long as this folder"
    yield (
        "the source (Kafka, files), spools outside the warehouse, the configuration, reports and "
        "exports: not Weir's to change"
    )
