"""Recorded polls: lines of JSON, one poll of one topic each, made into records of the contract.

A line is `{"polled_ms": …, "topic": …, "stats": …, "internal": …, "info": …, "policies": …}`; a
missing answer is left out, and `"gone": true` means that the topic did not exist.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.config.pulsar_admin import PulsarAdminSettings
from app.errors import UserError
from app.ingest.pollers.pulsar.documents import Names, Record, map_poll
from app.ingest.pollers.spool import Spool
from udfs.topics import normal_topic

ENDINGS = (".json", ".jsonl", ".ndjson")


@dataclass
class Converted:
    """The result of a conversion."""

    path: Path | None = None
    """The file that was written; None without anything new."""
    polls: int = 0
    earlier: int = 0
    """Polls that are not newer than what was converted before: left out."""
    problems: list[str] = field(default_factory=list)
    """The parts that could not be used."""


def recordings(folder: Path) -> list[Path]:
    """The files of recorded polls in a folder, in the order of their paths."""
    if not folder.is_dir():
        raise UserError(
            f"source.path: {folder} does not exist\n"
            "allowed: a folder with files of recorded polls, one poll a line"
        )
    endings = (*ENDINGS, *(f"{ending}.gz" for ending in ENDINGS))
    found = sorted(file for file in folder.rglob("*") if file.name.endswith(endings))
    return [file for file in found if not file.name.startswith((".", "_"))]


def convert(folder_in: Path, folder_out: Path, settings: PulsarAdminSettings) -> Converted:
    """Map the recorded polls of a folder, in the order of their times, to lines of the contract.

    The lines go to one new file in `folder_out`/polls. Converting again takes only polls that are
    newer than all before, so a folder that grows can be converted as often as wanted.
    """
    spool = Spool(folder_out, settings.cluster)
    spool.hold(wait=True)
    done = Converted()
    try:
        with tempfile.TemporaryDirectory(prefix="weir-polls-") as unpacked:
            found = recordings(folder_in)
            files = [_plain(file, Path(unpacked), i) for i, file in enumerate(found)]
            places = _places(files, done)
            last = spool.memory.last_poll_ms
            new = [place for place in places if place[0] > last]
            done.earlier = len(places) - len(new)
            if new:
                names = Names(settings.cluster, settings.broker)
                earliest_ms = min(polled_ms for polled_ms, *_ in new)
                done.path = spool.commit(earliest_ms, _records(new, files, spool, names, done))
    finally:
        spool.release()
    return done


def _plain(file: Path, folder: Path, number: int) -> Path:
    """The file itself, or what is in it if it is packed."""
    if file.suffix != ".gz":
        return file
    plain = folder / f"{number}.jsonl"
    try:
        with gzip.open(file) as packed, plain.open("wb") as out:
            shutil.copyfileobj(packed, out)
    except (OSError, EOFError) as error:
        raise UserError(f"{file}: cannot be read to its end: {error}") from error
    return plain


def _places(files: list[Path], done: Converted) -> list[tuple[int, int, int]]:
    """Time, file and place of every poll, in order: the polls themselves may be many."""
    places = []
    for number, file in enumerate(files):
        for at, line in _lines(file):
            poll = _poll(line)
            if poll is None:
                done.problems.append(f"{file.name}, byte {at}: is not a poll")
            else:
                places.append((poll["polled_ms"], number, at))
    return sorted(places)


def _records(
    places: list[tuple[int, int, int]], files: list[Path], spool: Spool, names: Names,
    done: Converted,
) -> Iterator[Record]:
    memory = spool.memory
    for _, number, at in places:
        with files[number].open("rb") as file:
            file.seek(at)
            poll = _poll(file.readline())
        assert poll is not None
        topic = normal_topic(str(poll.get("topic")), None)
        mapped = map_poll(poll, memory.topics.get(topic), memory.policies, names)
        done.polls += 1
        done.problems += [f"{files[number].name}, byte {at}: {text}" for text in mapped.problems]
        memory.take(topic, mapped)
        memory.last_poll_ms = poll["polled_ms"]
        yield from mapped.records


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    at = 0
    with file.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield at, line
            at += len(line)


def _poll(line: bytes) -> dict[str, Any] | None:
    """A poll with a time; None for what is none."""
    try:
        poll = json.loads(line)
    except (ValueError, RecursionError):
        return None
    at = poll.get("polled_ms") if isinstance(poll, dict) else None
    return poll if isinstance(at, int) and not isinstance(at, bool) and at >= 0 else None
