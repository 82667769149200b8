"""One run at a time for the queries of a warehouse."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from app.errors import UserError
from app.warehouse_files import local_path

if TYPE_CHECKING:
    from app.settings import Settings


@contextmanager
def only_run(settings: Settings, queries: Sequence[str]) -> Iterator[None]:
    """Hold the queries of the warehouse, or refuse while another process does.

    The lock ends with its process, however that ends. An object store has none: there Spark's
    checkpoint refuses the second writer, later and less clearly.
    """
    root = local_path(settings.warehouse)
    with ExitStack() as held:
        for name in () if root is None else queries:
            folder = root / "_weir" / "locks"
            folder.mkdir(parents=True, exist_ok=True)
            file = held.enter_context((folder / name).open("w"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"warehouse: another run works on {settings.warehouse} (query {name})\n"
                    "stop it first, or take another warehouse"
                ) from None
        yield
