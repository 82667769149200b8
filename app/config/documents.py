"""Documents of users: whatever a file or an option holds is JSON's values within bounds, or a
UserError with file and line.

YAML can say more than a configuration needs. An alias can stand for itself or for thousands of
copies, a number can have any length, a text can have characters that nothing takes, and a tag can
ask for a set, bytes or an object of Python. All of these are refused before anything walks through
the document. So what is read can be written as JSON, and reading ends within seconds.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from yaml._yaml import CParser  # PyYAML has types for its loaders only
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.reader import ReaderError
from yaml.resolver import Resolver

from app.config.shipped import Place
from app.errors import UserError
from app.plain_text import lines_of

MOST_BYTES = 8 * 1024 * 1024
"""Size of a file. A policy takes about 90 bytes."""
MOST_VALUES = 250_000
"""Values of a document, keys included: 25,000 policies. They are read in about 3 s."""
DEEPEST = 50
"""Mappings and lists within each other."""
MOST_COPIES = 10_000
"""Values that the aliases of a document stand for, all together."""
LONGEST_NUMBER = 100
"""Characters of a number."""
MOST_DIRECTIVES = 10
"""Lines that begin with %. libyaml compares each with all before it."""

_DIRECTIVE = re.compile("^%|[\n\r\x85\u2028\u2029]%")
_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_TIME = f"{_TAG}timestamp"
_SCALARS = tuple(_TAG + kind for kind in ("null", "bool", "int", "float", "str"))
_KINDS = (*_SCALARS, f"{_TAG}seq", f"{_TAG}map")


class _Resolver(Resolver):
    """Dates and times without quotes are text, as in JSON."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag != _TIME]
        for first, found in Resolver.yaml_implicit_resolvers.items()
    }


class _Loader(Composer, SafeConstructor, _Resolver, CParser):
    """Nodes within the bounds above, from the events of libyaml, and their values."""

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        _Resolver.__init__(self)
        self._depth = self._values = self._copies = 0
        self._size_of: dict[yaml.Node, int] = {}
        """Values within each node that is complete."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> Any:
        event: Any = self.peek_event()
        if self._depth > DEEPEST:
            raise _problem(f"values are nested more than {DEEPEST} deep", event)
        before = self._values
        self._depth += 1
        node: Any = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            if node not in self._size_of:
                raise _problem(f"the alias *{event.anchor} is a part of what it stands for", event)
            self._copies += self._size_of[node]
            self._values += self._size_of[node]
            if self._copies > MOST_COPIES:
                raise _problem(f"aliases stand for more than {MOST_COPIES} values", event)
            return node
        self._values += 1
        if self._values > MOST_VALUES:
            raise _problem(f"has more than {MOST_VALUES:,} values; use several files", event)
        self._size_of[node] = self._values - before
        return node

    def value(self, node: yaml.Node) -> Any:
        """The value of a node, in the types of JSON."""
        if node.tag not in _KINDS or (node.tag in _SCALARS) != isinstance(node, yaml.ScalarNode):
            kind = node.tag.removeprefix(_TAG)
            raise _problem(
                f"{_shown(node)} is of type {kind:.40} (allowed: text, numbers, true, false, null, lists,"
                " mappings)",
                node,
            )
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each) for each in node.value]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node)
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        """A mapping with its merges. A repeated key is refused: YAML keeps the last one."""
        seen: set[str] = set()
        for each, _ in node.value:
            key = each.value if each.tag == _MERGE else self._key(each)
            if key in seen:
                raise _problem(f"{_shown(each)} is given twice", each)
            seen.add(key)
        self.flatten_mapping(node)
        return {self._key(key): self.value(value) for key, value in node.value}

    def _key(self, node: yaml.Node) -> str:
        key = self.value(node)
        if not isinstance(key, str):
            raise _problem(f"{_shown(node)} is no text, as a key is; put it in quotes", node)
        return key

    def _scalar(self, node: yaml.Node) -> Any:
        """A text, number or truth. A number that a text only resembles is a mistake, not an
        exception of Python."""
        if node.tag == f"{_TAG}str":
            if "\0" in node.value:
                raise _problem("the character U+0000 is not allowed", node)
            return node.value
        if len(node.value) > LONGEST_NUMBER:
            raise _problem(
                f"{_shown(node)} has more than {LONGEST_NUMBER} characters as a number", node
            )
        try:
            value = self.construct_object(node)
        except (ValueError, LookupError) as error:
            kind = node.tag.removeprefix(_TAG)
            raise _problem(f"{_shown(node)} is not a valid {kind}", node) from error
        if isinstance(value, float) and not math.isfinite(value):
            raise _problem(f"{_shown(node)} is not a finite number", node)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise _problem(f"{_shown(node)} is not a number of 64 bits", node)
        return value


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
        # A path of the machine may be a pipe, whose opening waits for a writer.
        with (
            open(path, "rb", opener=_at_once) if isinstance(path, Path) else path.open("rb") as file
        ):
            if isinstance(path, Path) and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UserError(f"{path}: is no file")
            data = file.read(MOST_BYTES + 1) or b""  # None: nothing there yet
    except IsADirectoryError:
        raise UserError(f"{path}: is no file") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({cause(error)})") from error
    if len(data) > MOST_BYTES:
        raise UserError(f"{path}: has more than {MOST_BYTES // 1024**2} MiB; use several files")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}: line {line}: is not UTF-8 text") from error


def is_folder(path: Place) -> bool:
    """Whether a path is that of a folder. Opening says what is wrong with one of nothing."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def cause(error: OSError | ValueError) -> str:
    """Why a path cannot be used; a ValueError is one that no file system takes."""
    return getattr(error, "strerror", None) or f"no path: {error}"


def value_of(text: str, where: str) -> Any:
    """The document of a text, None for an empty one; `where` begins the message of a UserError."""
    with _of(text, where) as (loader, node):
        return None if node is None else loader.value(node)


def node_of(text: str, where: str) -> yaml.Node | None:
    """The nodes of a text, with their lines; `where` begins the message of a UserError."""
    with _of(text, where) as (_, node):
        return node


@contextmanager
def _of(text: str, where: str) -> Iterator[tuple[_Loader, yaml.Node | None]]:
    """A text's nodes. What is a mistake in them is a UserError, in the context as well."""
    try:
        if len(_DIRECTIVE.findall(text)) > MOST_DIRECTIVES:
            raise yaml.YAMLError(f"more than {MOST_DIRECTIVES} lines begin with %")
        loader = _Loader(text)
        yield loader, loader.get_single_node()
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise UserError(f"{where}: {_why(error, text)}") from error


def _why(error: Exception, text: str) -> str:
    """A mistake in one line, with the line of the text."""
    mark = getattr(error, "problem_mark", None)
    # libyaml has the end of a text without a line break in the line after its last.
    number = min(mark.line + 1, len(lines_of(text)) or 1) if mark else None
    problem = getattr(error, "problem", None)
    if isinstance(error, ReaderError):
        before = text.encode()[: error.position].decode(errors="replace")
        number = before.count("\n") + 1
        problem = f"the character U+{ord(text[len(before)]):04X} is not allowed"
    where = f"line {number}: " if number else ""
    return where + " ".join(str(problem or error).split())
