"""The rooms of the jobs: what each job shows, beside `state/<job>`, which decides.

A room is a package named as its job, with modules of fixed names, each optional; whatever loops
over the jobs asks `parts` for them, so adding a job adds a folder. Start with a room's `views` and
`questions`. Imports `app.read`, `app.config` and the machinery that a module is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import Any


def rooms_with(module: str) -> list[str]:
    """The rooms that have a module of this name, without loading what jobs are."""
    rooms = [f"{__name__}.{each.name}" for each in iter_modules(__path__)]
    return [room for room in rooms if find_spec(f"{room}.{module}") is not None]


def parts(module: str) -> dict[str, ModuleType]:
    """The modules of this name, by job in the order of `state.jobs`; jobs without one are left out."""
    from state.jobs import DECLARED

    names = {job: f"{__name__}.{job}.{module}" for job in DECLARED}
    return {
        job: import_module(name)
        for job, name in names.items()
        if find_spec(name.rpartition(".")[0]) is not None and find_spec(name) is not None
    }


def every(module: str, attribute: str) -> Iterator[Any]:
    """The items of a collection that the modules of this name declare, job by job."""
    for part in parts(module).values():
        yield from getattr(part, attribute)
