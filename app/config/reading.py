"""Reads configuration files, and reports mistakes by key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from app.config.documents import node_of, text_of, value_of
from app.config.shipped import Place
from app.errors import UserError, did_you_mean
from app.terminal.secrets import MASK, SECRET, without_secrets

UNITS = {
    "_ms": "milliseconds",
    "Millis": "milliseconds",
    "_ns": "nanoseconds",
    "_bytes": "bytes",
    "_s": "seconds",
}
COMMON_SHAPES = {
    "string_type": "text",
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "list_type": "a list",
    "bool_type": "true or false",
}
MOST_MISTAKES = 1_000
"""Mistakes of a document that are told."""
LONGEST_MISTAKE = 3_000
"""Characters of the description of a mistake."""
SECRET_SECTIONS = frozenset({"options", "headers", "storage_options"})
"""Sections in which any value may be a secret."""


def read_yaml(path: Place, shape: type) -> Any:
    """The document in a YAML file; an empty file is an empty document. It must be of `shape`."""
    document = value_of(text_of(path), str(path))
    if document is None:
        return shape()
    if not isinstance(document, shape):
        raise UserError(f"{path}: is not {'a mapping of keys' if shape is dict else 'a list'}")
    return document


@dataclass(frozen=True)
class LineNumbers:
    """Line numbers of the items of a list in a file. They are read when they are asked for.

    The list is the whole file, or the value at nested `keys`.
    """

    path: Path
    keys: tuple[str, ...] = ()

    def of(self, item: int) -> dict[str, int]:
        """Line numbers by key, such as `limits.x`; the empty key has that of the item. Empty where
        the file has changed since it was read."""
        return self._every[item] if item < len(self._every) else {}

    @cached_property
    def _every(self) -> list[dict[str, int]]:
        try:
            node = node_of(text_of(self.path), str(self.path))
        except UserError:
            return []
        for key in self.keys:
            inner = node.value if isinstance(node, yaml.MappingNode) else ()
            node = next((value for name, value in inner if name.value == key), None)
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        return [dict(_lines(item, "")) for item in items]


def _lines(node: yaml.Node, place: str) -> Iterator[tuple[str, int]]:
    yield place, node.start_mark.line + 1
    for name, value in node.value if isinstance(node, yaml.MappingNode) else ():
        inner = f"{place}.{name.value}".lstrip(".")
        yield from _lines(value, inner)
        yield inner, name.start_mark.line + 1


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `over` in it, mappings joined key by key."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[key] = merge(old or {}, value) if both else value
    return result


def describe(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """The first mistakes, one line each: key, value and allowed values."""
    found = error.errors(include_url=False)[:MOST_MISTAKES]
    return [shortened(_describe(dict(item), model)) for item in found]


def _describe(item: dict[str, Any], model: type[BaseModel]) -> str:
    kind, place = item["type"], list(item["loc"])
    key = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place).lstrip(".")
    may_be_secret = kind != "literal_error" and _takes_secrets(place)
    value, context = _shown(item["input"], may_be_secret), item.get("ctx", {})
    if kind == "extra_forbidden":
        return f"{key}: unknown key ({did_you_mean(str(place[-1]), _fields(model, place[:-1]))})"
    if kind == "literal_error":
        allowed = context["expected"].replace("'", "").replace(" or ", ", ")
        return f"{key}: {value} is not supported (allowed: {allowed})"
    if kind == "value_error":
        text = str(without_secrets(str(context["error"])))
        # A check of several keys names its own key first.
        return f"{key}.{text}".lstrip(".") if ": " in text.split(" ")[0] + " " else f"{key}: {text}"
    if kind.startswith(("int_", "float_")):
        name = str(place[-1]).removesuffix("_per_s")
        unit = next((u for end, u in UNITS.items() if name.endswith(end)), None)
        either = ", nor a duration such as 10s" if unit in ("milliseconds", "seconds") else ""
        number = "whole number" if kind.startswith("int_") else "number"
        return f"{key}: {value} is not a {number}" + (f" of {unit}{either}" if unit else "")
    if kind in ("greater_than_equal", "less_than_equal"):
        word, bound = ("below", "ge") if kind == "greater_than_equal" else ("above", "le")
        return f"{key}: {value} is {word} {context[bound]}"
    if kind in COMMON_SHAPES:
        return f"{key}: {value} is not {COMMON_SHAPES[kind]}"
    return f"{key}: {item['msg'].lower()}"


def _takes_secrets(place: list[Any]) -> bool:
    keys = [str(name) for name in place]
    return bool(SECRET_SECTIONS.intersection(keys)) or any(SECRET.search(key) for key in keys)


def _shown(value: Any, may_be_secret: bool) -> str:
    """A refused value for a message; a list or a mapping, which may hold a secret anywhere, by its
    kind only."""
    if isinstance(value, dict | list):
        return COMMON_SHAPES["dict_type" if isinstance(value, dict) else "list_type"]
    return repr(MASK if may_be_secret else without_secrets(value))


def shortened(text: str) -> str:
    """The description of a mistake, whatever key or value is in it."""
    return text if len(text) <= LONGEST_MISTAKE else f"{text[:LONGEST_MISTAKE]}..."


def _fields(model: type[BaseModel], place: list[Any]) -> tuple[str, ...]:
    for name in place:
        field = model.model_fields.get(str(name))
        inner = field.annotation if field else None
        nested = [t for t in (inner, *get_args(inner)) if isinstance(t, type)]
        model = next((t for t in nested if issubclass(t, BaseModel)), model)
    return tuple(field.alias or name for name, field in model.model_fields.items())
