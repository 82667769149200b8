"""One check of `doctor` and `validate --connect`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.errors import UserError


@dataclass(frozen=True)
class Check:
    """The result of a check: whether it passed, the findings, and the remedy."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    needed: bool = True
    """Whether a run does not start where it failed."""


def checked(name: str, question: Callable[[], str]) -> Check:
    """The result of a check; a UserError is a failure, its second line the remedy."""
    try:
        return Check(name, True, question())
    except UserError as error:
        first, _, remedy = str(error).partition("\n")
        return Check(name, False, first.removeprefix(f"{name}: "), remedy)
