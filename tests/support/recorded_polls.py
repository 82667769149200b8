"""Recorded polls: lines of JSON, one poll of one topic each, made into records of the contract.

A line is `{"polled_ms": …, "topic": …, "stats": …, "internal": …, "info": …, "policies": …}`; a
missing answer is left out, and `"gone": true` means that the topic did not exist.

Lines that are no polls, and parts of polls that cannot be used, become records of kind
`bad_document`, which go to quarantine; the rest is converted.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app import folders
from app.config.pulsar_admin import WHERE, PulsarAdminSettings
from app.errors import UserError, refusal
from app.sources.poll_records import Record
from app.sources.pulsar.admin_documents import (
    FEED,
    UNKNOWN_BROKER,
    PolledTopic,
    map_poll,
)
from app.sources.pulsar.admin_policies import PollNames, other_name
from app.sources.spool import Spool
from udfs.topics import normal_topic, split_topic

SHOWN = 50
"""Problems that are printed, at most."""
LINE_SHOWN = 200
"""Characters of a line that is shown, at most."""
LATEST_MS = 10**15
UNREADABLE = "unreadable"
"""In the memory: the places of lines that are known to be no polls."""
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
    notes: list[str] = field(default_factory=list)
    """What is worth saying of the cluster."""

    def text(self) -> str:
        """Notes and problems, a line each; empty without any."""
        more = len(self.problems) - SHOWN
        return "\n".join(
            [
                *(f"{FEED}: {note}" for note in self.notes),
                *(
                    [
                        f"{FEED}: {self.polls} recorded polls, {len(self.problems)} problems, which"
                        " quarantine has as BAD_DOCUMENT:"
                    ]
                    if self.problems
                    else []
                ),
                *(f"  {problem}" for problem in self.problems[:SHOWN]),
                *([f"  and {more} more"] if more > 0 else []),
            ]
        )


def recordings(folder: Path) -> list[Path]:
    """The files of recorded polls in a folder, in the order of their paths."""
    if not folder.is_dir():
        raise UserError(
            f"source.path: {folder} does not exist\n"
            "allowed: a folder with files of recorded polls, one poll a line"
        )
    endings = (*ENDINGS, *(f"{ending}.gz" for ending in ENDINGS))
    found = sorted(f.path for f in folders.files_below(folder) if f.path.name.endswith(endings))
    return [file for file in found if not file.name.startswith((".", "_"))]


def convert(folder_in: Path, folder_out: Path, settings: PulsarAdminSettings) -> Converted:
    """Map the recorded polls of a folder, in the order of their times, to lines of the contract.

    The lines go to one new file in `folder_out`/polls. Converting again takes only polls that are
    newer than all before, so a folder that grows can be converted as often as wanted.
    """
    spool = Spool(folder_out, settings.cluster, WHERE, PolledTopic)
    spool.hold(wait=True)
    done = Converted()
    try:
        with tempfile.TemporaryDirectory(prefix="weir-polls-") as unpacked:
            found = recordings(folder_in)
            known = set(spool.memory.extra.get(UNREADABLE, ()))
            lost: list[tuple[str, str]] = []
            files = [_plain(file, Path(unpacked), i, lost) for i, file in enumerate(found)]
            places = _places(files, [str(file.relative_to(folder_in)) for file in found], lost)
            lost = [(_plain_text(place), why) for place, why in lost]
            lost = [(place, why) for place, why in lost if place not in known]
            last = spool.memory.last_poll_ms
            new = [place for place in places if place[0] > last]
            done.earlier = len(places) - len(new)
            if new or lost:
                names = PollNames(settings.cluster, settings.broker)
                earliest_ms = min((polled_ms for polled_ms, *_ in new), default=last)
                if lost:
                    spool.memory.extra[UNREADABLE] = sorted(known | {place for place, _ in lost})
                done.path = spool.commit(
                    earliest_ms,
                    (
                        *_unreadable(lost, names, done),
                        *_records(new, files, spool, names, done),
                    ),
                )
    finally:
        spool.release()
    return done


def _plain(file: Path, folder: Path, number: int, lost: list[tuple[str, str]]) -> Path:
    """The file itself, or what is in it if it is packed, as far as it can be read."""
    if file.suffix != ".gz":
        return file
    plain = folder / f"{number}.jsonl"
    plain.touch()
    try:
        with gzip.open(file) as packed, plain.open("wb") as out:
            shutil.copyfileobj(packed, out)
    except (OSError, EOFError, zlib.error) as error:
        if refusal(error):  # not of what is read, but of the folder of temporary files
            raise UserError(f"{plain}: {refusal(error)}") from error
        lost.append((file.name, f"cannot be read to its end: {error}"))
    return plain


def _places(
    files: list[Path], names: list[str], lost: list[tuple[str, str]]
) -> list[tuple[int, int, int]]:
    """Time, file and place of every poll, in order: the polls themselves may be many."""
    places = []
    for number, file in enumerate(files):
        for at, line in _lines(file):
            poll = _poll(line)
            if isinstance(poll, str):
                lost.append((f"{names[number]}, byte {at}", poll))
            else:
                places.append((poll["polled_ms"], number, at))
    return sorted(places)


def _unreadable(lost: list[tuple[str, str]], names: PollNames, done: Converted) -> Iterator[Record]:
    for place, why in lost:
        done.problems.append(f"{place}: {why}")
        yield _bad_document(names, f"{place}: {why}")


def _bad_document(names: PollNames, problem: str, **columns: Any) -> Record:
    return {
        "event_type": "bad_document",
        "source_feed": FEED,
        "cluster": names.cluster,
        "broker": names.broker or UNKNOWN_BROKER,
        **columns,
        "problem": _plain_text(problem),
    }


def _plain_text(text: str) -> str:
    """A text that can be written: the name of a file may have any bytes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _records(
    places: list[tuple[int, int, int]],
    files: list[Path],
    spool: Spool,
    names: PollNames,
    done: Converted,
) -> Iterator[Record]:
    memory = spool.memory
    for _, number, at in places:
        with files[number].open("rb") as file:
            file.seek(at)
            poll = _poll(file.readline())
        assert isinstance(poll, dict)
        topic = normal_topic(str(poll.get("topic")), None)
        mapped = map_poll(poll, memory.topics.get(topic), memory.policies, names)
        done.polls += 1
        policies = poll.get("policies")
        note = other_name(names.cluster, policies) if isinstance(policies, dict) else None
        if note is not None and note not in done.notes:
            done.notes.append(note)
        memory.take(topic, mapped.known, mapped.policies, poll["polled_ms"])
        yield from mapped.records
        for problem in mapped.problems:
            done.problems.append(f"{topic} at {poll['polled_ms']}: {problem}")
            yield _bad_document(
                names,
                f"{topic}: {problem}",
                ts_wall_ms=poll["polled_ms"],
                **({} if split_topic(topic) is None else {"topic": topic}),
            )


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    at = 0
    with file.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield at, line
            at += len(line)


def _poll(line: bytes) -> dict[str, Any] | str:
    """A poll with a time; why a line is none."""
    shown = line.decode("utf-8", "backslashreplace").strip()[:LINE_SHOWN]
    try:
        poll = json.loads(line)
    except (ValueError, RecursionError):
        return f"is not JSON: {shown}"
    if not isinstance(poll, dict):
        return f"is not a poll: {shown}"
    at = poll.get("polled_ms")
    if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < LATEST_MS:
        return f"polled_ms: {str(at)[:LINE_SHOWN]!r} is not a time in milliseconds"
    return poll
