"""Files of JSON that Weir keeps: one way to read, write and refuse them.

A file is of one type, a dataclass or a mapping, and is read as that type or not at all. Of the files
of a warehouse, `load` refuses a damaged one with its remedy; `usable` is for files whose loss costs
nothing that the next run does not write again. `text` and `of_text` are for files elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from app.tables.small_files import PUT_BACK, Damaged, path_in, read_text, write_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from app.config.location import Location

T = TypeVar("T")
LONGEST_REASON = 200


@dataclass(frozen=True)
class Document(Generic[T]):
    """A kind of file."""

    kind: Any
    """The type of its contents."""
    remedy: str = PUT_BACK
    """What helps if it is damaged."""
    indent: int | None = None

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        from pydantic import TypeAdapter  # tasks import this module and read no file

        return TypeAdapter(self.kind)

    def load(self, warehouse: Location, name: str) -> T | None:
        """The contents of the file `name` below the warehouse; None if there is none. Damaged for
        other contents.
        """
        text = read_text(warehouse, name, self.remedy)
        try:
            return None if text is None else self.of_text(text)
        except ValueError as error:
            raise Damaged(
                path_in(warehouse, name), f"is damaged ({str(error)[:LONGEST_REASON]})", self.remedy
            ) from None

    def of_text(self, text: str) -> T:
        """The contents of a file with this text; a ValueError in a few words for other contents."""
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            reason = f"{place}: {first['msg']}" if place else first["msg"]
            raise ValueError(reason if text.strip() else "empty") from None

    def usable(self, warehouse: Location, name: str) -> T | None:
        """As `load`; None also for a damaged file."""
        try:
            return self.load(warehouse, name)
        except Damaged:
            return None

    def keep(self, warehouse: Location, name: str, contents: T) -> None:
        """Write the file, whole or not at all."""
        write_text(warehouse, name, self.text(contents))

    def text(self, contents: T) -> str:
        """The text of a file with these contents."""
        return self._adapter.dump_json(contents, indent=self.indent).decode() + "\n"
