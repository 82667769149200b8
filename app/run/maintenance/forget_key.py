"""The key that pseudonyms follow from, until the names are forgotten.

It is in the warehouse while tables may have the pseudonym of a name and others still the name: so a
`forget` that is repeated after its end by a signal or a failure gives the same one. Then it is
destroyed, and nobody can find out by trying names whose pseudonym a row has.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from app.run.maintenance.names import Name
from app.tables import durable
from app.tables.json_documents import Document
from app.tables.small_files import local_path, remove

if TYPE_CHECKING:
    from app.config.location import Location

KEY = "_weir/forget.json"


@dataclass(frozen=True)
class ForgetKey:
    """The key, and whose names are replaced in a part of the warehouse."""

    key: str = field(default_factory=lambda: secrets.token_hex(32))
    begun: list[str] = field(default_factory=list)
    """Their pseudonyms."""


_DOCUMENT: Document[ForgetKey] = Document(
    ForgetKey,
    "remove the file: names that were replaced in a part of the warehouse get another pseudonym in the"
    " rest",
)


def load(warehouse: Location) -> ForgetKey:
    """The key of a `forget` that has not ended, otherwise a new one."""
    return _DOCUMENT.load(warehouse, KEY) or ForgetKey()


def begin(warehouse: Location, key: ForgetKey, names: Sequence[Name]) -> ForgetKey:
    """Keep the key until `end`."""
    begun = replace(key, begun=sorted({*key.begun, *(name.pseudonym for name in names)}))
    _DOCUMENT.keep(warehouse, KEY, begun)
    folder = local_path(warehouse.uri)
    if folder is not None:
        durable.sync(folder)  # before any table has a pseudonym
    return begun


def end(warehouse: Location, key: ForgetKey, names: Sequence[Name]) -> None:
    """Destroy the key, unless other names need it."""
    left = sorted({*key.begun} - {name.pseudonym for name in names})
    if left:
        _DOCUMENT.keep(warehouse, KEY, replace(key, begun=left))
    else:
        remove(warehouse, KEY)
