"""What a disaster is: its name, what it does to a run, and where it is possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.crash.site import Site


def anywhere() -> str:
    """No obstacle."""
    return ""


@dataclass(frozen=True)
class Disaster:
    """A disaster and its end.

    `strike` does it to runs on a site, raises Failed where they do not behave as `expects` says,
    follows the remedy, and has everything processed; the tables are then compared.
    """

    name: str
    strike: Callable[[Site], None]
    expects: Literal["goes on", "stops"]
    source: Literal["files", "kafka"] = "files"
    obstacle: Callable[[], str] = anywhere
    """Why it is not possible on this machine; empty if it is."""
