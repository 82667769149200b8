"""What `doctor` and `validate --connect` report about one thing that they have looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.errors import UserError


@dataclass(frozen=True)
class Check:
    """One thing looked at: whether it is in order, what was found, what would mend it."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def checked(name: str, question: Callable[[], str]) -> Check:
    """The answer to a question; a UserError is what is not in order, its second line the remedy."""
    try:
        return Check(name, True, question())
    except UserError as error:
        first, _, remedy = str(error).partition("\n")
        return Check(name, False, first.removeprefix(f"{name}: "), remedy)
