"""Names of persons: the columns that hold them, and the SQL that replaces them by pseudonyms.

Columns of names and labels are compared as a whole, and so are the strings of policy documents. In
texts, such as raw records and summaries of alerts, a name counts between characters that are no
letters, digits or underscores.
"""

from __future__ import annotations

import hmac
import html
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from app.errors import UserError
from app.read.databases import literal
from app.tables.definitions import Table, TableColumn

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "principal": ("principal", "user", "entity"),
    "client_id": ("client_id", "client", "entity"),
    "producer": ("producer_name", "uuid", "transactional_id"),
    "consumer": ("consumer",),
    "subscription": ("subscription", "oldest_subscription", "group"),
    "connection": ("cnx_id", "limiter_name", "client_host"),
    "topic": (
        "topic",
        "culprit_topic",
        "trigger_topic",
        "top_topic",
        "limiter_name",
        "collateral_topics",
        "entity",
    ),
}
"""By kind of name the columns that hold names of that kind."""
VALUES = ("labels",)
"""Columns with values of any kind."""
DOCUMENTS = ("policy_json", "topic_bytes")
"""Columns of JSON whose strings, keys too, are values of any kind."""
TEXTS = (
    "raw",
    "detail",
    "exception",
    "error",
    "summary",
    "observed",
    "author",
    "problem",
    "remarks",
)
"""Columns of text in which any name may occur."""
_AROUND = {
    "principal": (r"(?:[^:\"]*:)?", ""),
    "producer": ("", r"(?:-[0-9]+)?"),
    "topic": (r"(?:[a-z-]+://)?", r"(?:-partition-[0-9]+)?"),
}
"""What may precede and follow a name of a kind: `User:` of a principal, the number of a message in
its uuid, scheme and partition of a topic.
"""
_BESIDE = {"principal": ("", "(?:/[^/]*)?"), "client_id": ("(?:[^/]*/)?", "")}
"""The same in the column `entity`, where a client of Kafka is its user and client id."""
_ESCAPES = r"\\[nrtbf]"


@dataclass(frozen=True)
class Name:
    """A name to forget, and its pseudonym."""

    kind: str
    text: str
    """The name without what `_AROUND` allows around it."""
    pseudonym: str

    @classmethod
    def given(cls, kind: str, text: str, key: str) -> list[Name]:
        """A name as a user writes it, such as User:alice or persistent://acme/orders/created. If a
        colon may end a prefix or belong to the name, there are two names with one pseudonym. It
        follows from the key: who has that can find the name by trying.
        """
        before, after = _AROUND.get(kind, ("", ""))
        short = re.sub(rf"\A{before}", "", text)
        if kind == "topic":
            short = re.sub(rf"{after}\Z", "", short)
        if not short:
            raise UserError(f"forget: {text!r} is no name of a {kind.replace('_', ' ')}")
        about = f"{kind}\0{short}".encode("utf-8", "surrogatepass")
        name = cls(
            kind, short, f"forgotten-{hmac.digest(key.encode(), about, 'sha256').hex()[:12]}"
        )
        return [name] if kind == "topic" or short == text else [name, replace(name, text=text)]

    def without(self, column: TableColumn, value: str) -> str:
        """SQL of a column's value with the pseudonym in place of the name."""
        if column.name == "entity" and self.kind in _BESIDE:
            before, after = _BESIDE[self.kind]
            return self._whole(value, (self._around[0] + before, after))
        if column.name in (*COLUMNS[self.kind], *VALUES):
            return _each(column.type, value, self._whole)
        if column.name in DOCUMENTS:
            return self._quoted(value)
        return self._inside(value) if column.name in TEXTS else value

    def replaced(self, text: str) -> str:
        """A text with the pseudonym in place of the name."""
        pattern = rf"(?:(?<={_ESCAPES})|(?<!\w)){self._any_spelling}(?!\w)"
        return re.sub(pattern, lambda _: self._new, text)

    @property
    def _new(self) -> str:
        """The pseudonym; that of a topic keeps its namespace, and so its tenant."""
        if self.kind != "topic":
            return self.pseudonym
        return "".join(self.text.rpartition("/")[:2]) + self.pseudonym

    @property
    def _spellings(self) -> list[str]:
        """The name as texts spell it: plain, in JSON and in HTML."""
        escaped = json.dumps(self.text)[1:-1]
        upper = re.sub(r"\\u[0-9a-f]{4}", lambda found: rf"\u{found[0][2:].upper()}", escaped)
        plain = json.dumps(self.text, ensure_ascii=False)[1:-1]
        found = dict.fromkeys((self.text, plain, escaped, upper, html.escape(self.text)))
        return sorted(found, key=len, reverse=True)

    @property
    def _any_spelling(self) -> str:
        return f"(?:{'|'.join(map(re.escape, self._spellings))})"

    @property
    def _around(self) -> tuple[str, str]:
        return _AROUND.get(self.kind, ("", ""))

    def _whole(self, value: str, around: tuple[str, str] | None = None) -> str:
        before, after = around or self._around
        return _replace(value, rf"\A({before}){re.escape(self.text)}({after})\z", self._new, "")

    def _quoted(self, value: str) -> str:
        before, after = self._around
        return _replace(value, f'("{before}){self._any_spelling}({after}")', self._new, "g")

    def _inside(self, value: str) -> str:
        pattern = rf"(\A|[^\pL\pN_]|{_ESCAPES}){self._any_spelling}([^\pL\pN_]|\z)"
        # What separates two names belongs to the first: every second one is found by a second look.
        return _replace(_replace(value, pattern, self._new, "g"), pattern, self._new, "g")


def replacements(names: Iterable[Name], table: Table) -> dict[str, str]:
    """By column that may hold one of the names: SQL of its value without them."""
    found: dict[str, str] = {}
    for column in table.columns:
        value = stored = f'"{column.name}"'
        for name in names:
            value = name.without(column, value)
        if value != stored:
            found[column.name] = value
    return found


def _each(kind: pa.DataType, value: str, replace: Callable[[str], str]) -> str:
    """SQL that replaces in a text, or in every text of a list or of a map's values."""
    if pa.types.is_list(kind):
        return f"list_transform({value}, lambda e: {replace('e')})"
    if pa.types.is_map(kind):
        return (
            f"map_from_entries(list_transform(map_entries({value}),"
            f" lambda e: struct_pack(k := e.key, v := {replace('e.value')})))"
        )
    return replace(value)


def _replace(value: str, pattern: str, new: str, options: str) -> str:
    kept = new.replace("\\", r"\\")
    arguments = ", ".join(map(literal, (pattern, rf"\1{kept}\2", options)))
    return f"regexp_replace({value}, {arguments})"
