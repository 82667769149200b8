"""YAML documents of users: whatever a file holds is a document of bounded size, or a mistake with
its line.

YAML can say more than a configuration needs. An alias can stand for itself or for thousands of
copies, a number can have any length, and a date need not exist. All of these are refused before
anything walks through the document.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from app.config.shipped import Place
from app.errors import UserError

MOST_BYTES = 8 * 1024 * 1024
"""Size of a file. A policy takes about 90 bytes."""
DEEPEST = 50
"""Mappings and lists within each other."""
MOST_COPIES = 10_000
"""Values that the aliases of a document stand for, all together."""
LONGEST_NUMBER = 100
"""Characters of a number."""


class _Loader(yaml.SafeLoader):
    """SafeLoader, within the bounds above, and without repeated keys: YAML keeps the last one."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._values = self._copies = 0
        self._size_of: dict[yaml.Node, int] = {}
        """Values within each node that is complete."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        peek: Callable[[], yaml.Event] = self.peek_event
        event = peek()
        if self._depth > DEEPEST:
            raise _problem(f"values are nested more than {DEEPEST} deep", event)
        before = self._values
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is None:
            return None
        if not isinstance(event, yaml.AliasEvent):
            self._values += 1
            self._size_of[node] = self._values - before
            return node
        if node not in self._size_of:
            raise _problem(f"the alias *{event.anchor} is a part of what it stands for", event)
        self._copies += self._size_of[node]
        self._values += self._size_of[node]
        if self._copies > MOST_COPIES:
            raise _problem(f"aliases stand for more than {MOST_COPIES} values", event)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """A value. The date or number that a text only resembles is a mistake, not an exception of
        Python."""
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS:
            self._check_length(node)
        try:
            value = super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            kind = node.tag.rpartition(":")[2]
            raise _problem(f"{_shown(node)} is not a valid {kind}", node) from error
        if isinstance(value, float) and not math.isfinite(value):
            raise _problem(f"{_shown(node)} is not a finite number", node)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise _problem(f"{_shown(node)} is not a number of 64 bits", node)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.MarkedYAMLError(problem=f"{key} is given twice, again in line {line}")
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)

    def _check_length(self, node: yaml.ScalarNode) -> None:
        if len(node.value) > LONGEST_NUMBER:
            raise _problem(
                f"{_shown(node)} has more than {LONGEST_NUMBER} characters as a number", node
            )


_MERGE = "tag:yaml.org,2002:merge"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def _problem(text: str, at: yaml.Node | yaml.Event) -> yaml.MarkedYAMLError:
    mark: Any = at.start_mark
    return yaml.MarkedYAMLError(problem=text, problem_mark=mark)


def _shown(node: yaml.Node) -> str:
    """A value for a message, shortened."""
    if not isinstance(node, yaml.ScalarNode):
        return f"this {'mapping' if isinstance(node, yaml.MappingNode) else 'sequence'}"
    text = node.value
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def text_of(path: Place) -> str:
    """The text of a file; a UserError if it cannot be read, is no file, or is too large."""
    try:
        if isinstance(path, Path) and path.exists() and not path.is_file():
            raise UserError(f"{path}: is no file")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    if len(data) > MOST_BYTES:
        raise UserError(f"{path}: has more than {MOST_BYTES // 1024**2} MiB; use several files")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}: line {line}: is not UTF-8 text") from error


def parsed(text: str) -> Any:
    """The document of a text; a YAMLError for what is none."""
    return yaml.load(text, Loader=_Loader)  # a SafeLoader


def composed(text: str) -> yaml.Node | None:
    """The nodes of a text, with their lines; a YAMLError for what is no document."""
    return yaml.compose(text, Loader=_Loader)


def why(error: yaml.YAMLError, text: str) -> str:
    """A YAMLError in one line, with the line of the text."""
    mark = getattr(error, "problem_mark", None)
    number = mark.line + 1 if mark else None
    problem = getattr(error, "problem", None)
    if isinstance(error, ReaderError):
        number = text.count("\n", 0, error.position) + 1
        problem = f"the character U+{ord(text[error.position]):04X} is not allowed"
    where = f"line {number}: " if number else ""
    return where + " ".join(str(problem or error).split())
