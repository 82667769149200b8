"""The policy documents of a configuration: where each is written, and the mistakes in them.

`policies`, and each of `shadows`, has documents and paths of files with lists of documents.
`policy_files` has paths. A path is a file, a folder (its *.yaml files), or a pattern such as
policies/*.yaml.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from glob import iglob
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from app import folders
from app.config.documents import cause, is_folder
from app.config.levels import source_of
from app.config.overlaps import Conflict, conflicts
from app.config.policies import problems
from app.config.reading import MOST_MISTAKES, LineNumbers, read_yaml, shortened
from app.config.source import listed
from app.errors import UserError
from state.engine.documents import Source

MOST_FILES = 10_000
"""Files of a folder or pattern."""


@dataclass(frozen=True)
class WrittenDocument:
    """A document and its place."""

    file: str
    key: str
    """Its place in the file, such as `[2]`."""
    document: Any
    item: int = 0
    """Its place among those of its list."""
    lines: LineNumbers | None = None
    """Line numbers of the list."""

    def line(self, key: str) -> int | None:
        """The line of a key, or of the nearest one around it."""
        lines = self.lines.of(self.item) if self.lines else {}
        while key and key not in lines:
            key = key.rpartition(".")[0]
        return lines.get(key)

    @cached_property
    def source(self) -> Source:
        """Scope and name of the document for the jobs."""
        return source_of(self.document)

    @property
    def where(self) -> str:
        """File and line, or file and key."""
        line = self.line("")
        return f"{self.file}:{line}" if line else f"{self.file}: {self.key}"


class Mistake(NamedTuple):
    """What is wrong with a document."""

    one: WrittenDocument
    key: str
    text: str

    def __str__(self) -> str:
        dot = "." if self.key else ""
        return f"{self.one.file}: {self.one.key}{dot}{self.key}: {self.text}"

    @property
    def line(self) -> int | None:
        """The line that it is in."""
        return self.one.line(self.key)


@dataclass
class PolicyDocuments:
    """The documents of a configuration."""

    every: list[WrittenDocument] = field(default_factory=list)
    """All that are valid, in their order."""
    mistakes: list[Mistake] = field(default_factory=list)
    replaced: list[tuple[WrittenDocument, WrittenDocument]] = field(default_factory=list)
    """Documents that a later one of the same scope and name replaces, and that one."""

    @property
    def in_force(self) -> list[WrittenDocument]:
        """The documents that none replaces."""
        return list({one.source: one for one in self.every}.values())

    @property
    def kept(self) -> list[Any]:
        """The documents that none replaces, as they are written."""
        return [one.document for one in self.in_force]


def written(document: dict[str, Any], where: str, folder: Path) -> PolicyDocuments:
    """The policies of a configuration and of its policy files; paths are relative to `folder`."""
    files = document.get("policy_files")
    found = [*_listed(document.get("policies"), where, folder, "policies")]
    for name in files if isinstance(files, list) else ():
        if isinstance(name, str):
            found += of_files(name, folder)
    return checked(found, _kafka_topics(document))


def shadows_written(
    document: dict[str, Any], where: str, folder: Path
) -> dict[str, PolicyDocuments]:
    """The policies of each shadow of a configuration."""
    shadows = document.get("shadows")
    return {
        name: checked(
            list(_listed(listed, where, folder, "shadows", name)), _kafka_topics(document)
        )
        for name, listed in (shadows.items() if isinstance(shadows, dict) else ())
    }


def _listed(listed: Any, where: str, folder: Path, *keys: str) -> Iterator[WrittenDocument]:
    """The documents of a list of documents and paths, or of a path, in the configuration."""
    every = [listed] if isinstance(listed, str) else listed if isinstance(listed, list) else []
    lines = LineNumbers(Path(where), keys)
    for i, each in enumerate(every):
        if isinstance(each, str):
            yield from of_files(each, folder)
        else:
            yield WrittenDocument(where, f"{'.'.join(keys)}[{i}]", each, i, lines)


def _kafka_topics(document: dict[str, Any]) -> bool:
    """Whether records of the source can have topics of Kafka."""
    feeds = [feed for _, feed in listed(document.get("source"))]
    formats = [str(feed.get("format")) for feed in feeds if isinstance(feed, dict)]
    # An archive may be one of a Kafka feed.
    return any(format == "delta" or format.startswith("kafka_") for format in formats)


def of_files(name: str, folder: Path) -> Iterator[WrittenDocument]:
    """The documents of the files that a path names."""
    for path in paths(name, folder):
        lines = LineNumbers(path)
        for i, each in enumerate(read_yaml(path, list)):
            yield WrittenDocument(str(path), f"[{i}]", each, i, lines)


def paths(name: str, folder: Path) -> list[Path]:
    """The files that a path names; a pattern may match none."""
    path = folder / name
    is_pattern = any(sign in name for sign in "*?[")
    try:
        if is_folder(path):
            found = iter(folders.matching(path, "*.yaml"))
        elif path.is_symlink() or path.exists() or not is_pattern:
            return [path]
        else:
            # `Path.glob` has no answer to absolute patterns and to `**` beside other signs.
            found = (folder / one for one in iglob(name, root_dir=folder, recursive=True))  # noqa: PTH207
        files = sorted(islice(found, MOST_FILES + 1))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({cause(error)})") from error
    if len(files) > MOST_FILES:
        raise UserError(f"{path}: names more than {MOST_FILES:,} files")
    return files


def checked(found: Sequence[WrittenDocument], kafka_topics: bool = True) -> PolicyDocuments:
    """Documents with the mistakes in them."""
    result = PolicyDocuments()
    for one in found:
        if len(result.mistakes) >= MOST_MISTAKES:
            break
        wrong = list(islice(problems(one.document, kafka_topics), MOST_MISTAKES))
        result.mistakes += [Mistake(one, shortened(at), shortened(text)) for at, text in wrong]
        if not wrong:
            result.every.append(one)
    last: dict[Any, WrittenDocument] = {}
    for one in result.every:
        if one.source in last:
            result.replaced.append((last[one.source], one))
        last[one.source] = one
    result.mistakes += [
        _mistake(conflict) for conflict in islice(conflicts(result.in_force), MOST_MISTAKES)
    ]
    return result


def _mistake(conflict: Conflict) -> Mistake:
    one, other, keys = conflict
    return Mistake(
        other,
        "name",
        (
            f"{other.document['name']!r} and {one.document['name']!r} ({one.where}) are equally"
            f" specific, match a name in common and differ in {', '.join(keys)}; make one of them more"
            " specific"
        ),
    )
