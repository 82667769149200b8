"""The policy documents of a configuration: where each is written, and the mistakes in them.

`policies`, and each of `shadows`, has documents and paths of files with lists of documents.
`policy_files` has paths. A path is a file, a folder (its *.yaml files), or a pattern such as
policies/*.yaml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from app import folders
from app.config.levels import source_of
from app.config.overlaps import Conflict, conflicts
from app.config.policies import problems
from app.config.reading import lines_of, read_yaml
from app.config.source import listed


@dataclass(frozen=True)
class WrittenDocument:
    """A document and its place."""

    file: str
    key: str
    """Its place in the file, such as `[2]`."""
    document: Any
    lines: Mapping[str, int] = field(default_factory=dict)
    """Line numbers of its keys; the empty key has that of the document itself."""

    def line(self, key: str) -> int | None:
        """The line of a key, or of the nearest one around it."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return self.lines.get(key)

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
        last = {source_of(one.document): one for one in self.every}
        return list(last.values())

    @property
    def kept(self) -> list[Any]:
        """The documents that none replaces, as they are written."""
        return [one.document for one in self.in_force]


def written(document: dict[str, Any], where: str, folder: Path) -> PolicyDocuments:
    """The policies of a configuration and of its policy files; paths are relative to `folder`."""
    files = document.get("policy_files")
    found = [*_listed(document.get("policies"), "policies", where, folder)]
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
            list(_listed(listed, f"shadows.{name}", where, folder)), _kafka_topics(document)
        )
        for name, listed in (shadows.items() if isinstance(shadows, dict) else ())
    }


def _listed(listed: Any, key: str, where: str, folder: Path) -> Iterator[WrittenDocument]:
    """The documents of a list of documents and paths, or of a path, in the configuration."""
    every = [listed] if isinstance(listed, str) else listed if isinstance(listed, list) else []
    lines = lines_of(Path(where), key) if every and Path(where).is_file() else []
    for i, each in enumerate(every):
        if isinstance(each, str):
            yield from of_files(each, folder)
        else:
            yield WrittenDocument(where, f"{key}[{i}]", each, lines[i] if lines else {})


def _kafka_topics(document: dict[str, Any]) -> bool:
    """Whether records of the source can have topics of Kafka."""
    feeds = [feed for _, feed in listed(document.get("source"))]
    formats = [str(feed.get("format")) for feed in feeds if isinstance(feed, dict)]
    # An archive may be one of a Kafka feed.
    return any(format == "delta" or format.startswith("kafka_") for format in formats)


def of_files(name: str, folder: Path) -> Iterator[WrittenDocument]:
    """The documents of the files that a path names."""
    for path in paths(name, folder):
        lines = lines_of(path)
        for i, each in enumerate(read_yaml(path, list)):
            yield WrittenDocument(str(path), f"[{i}]", each, lines[i] if lines else {})


def paths(name: str, folder: Path) -> list[Path]:
    """The files that a path names; a pattern may match none."""
    path = folder / name
    if path.is_dir():
        return folders.matching(path, "*.yaml")
    if path.exists() or not any(sign in name for sign in "*?["):
        return [path]
    return folders.matching(folder, name)


def checked(found: Sequence[WrittenDocument], kafka_topics: bool = True) -> PolicyDocuments:
    """Documents with the mistakes in them."""
    result = PolicyDocuments()
    for one in found:
        wrong = list(problems(one.document, kafka_topics))
        result.mistakes += [Mistake(one, at, text) for at, text in wrong]
        if not wrong:
            result.every.append(one)
    last: dict[Any, WrittenDocument] = {}
    for one in result.every:
        source = source_of(one.document)
        if source in last:
            result.replaced.append((last[source], one))
        last[source] = one
    result.mistakes += [_mistake(conflict) for conflict in conflicts(result.in_force)]
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
