"""Files of JSON that Weir keeps beside the tables: one way to read, write and refuse them.

A file is of one type, a dataclass or a mapping, and is read as that type or not at all. `load`
refuses a damaged file with its remedy; `usable` is for files whose loss costs nothing that the next
run does not write again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from app.warehouse.small_files import PUT_BACK, Damaged, path_in, read_text, write_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from app.config.settings import Settings

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

    def load(self, settings: Settings, name: str) -> T | None:
        """The contents of the file `name` below the warehouse; None if there is none. Damaged for
        other contents.
        """
        text = read_text(settings, name, self.remedy)
        return None if text is None else self.parsed(settings, name, text)

    def parsed(self, settings: Settings, name: str, text: str) -> T:
        """The contents of a file with this text; Damaged for other contents."""
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            reason = f"{place}: {first['msg']}" if place else first["msg"]
            raise self._damaged(settings, name, reason if text.strip() else "empty") from None

    def usable(self, settings: Settings, name: str) -> T | None:
        """As `load`; None also for a damaged file."""
        try:
            return self.load(settings, name)
        except Damaged:
            return None

    def keep(self, settings: Settings, name: str, contents: T) -> None:
        """Write the file, whole or not at all."""
        text = self._adapter.dump_json(contents, indent=self.indent).decode()
        write_text(settings, name, text + "\n")

    def _damaged(self, settings: Settings, name: str, reason: object) -> Damaged:
        return Damaged(
            path_in(settings, name), f"is damaged ({str(reason)[:LONGEST_REASON]})", self.remedy
        )
