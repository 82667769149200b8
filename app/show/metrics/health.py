"""Progress of the queries of a run: small files that the run writes and any exporter reads.

`<warehouse>/_weir/progress/<query>.json` holds the figures of one query since its run began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from app.show.metrics.part import Sample
from app.tables.json_documents import Document
from app.tables.small_files import local_path, names

if TYPE_CHECKING:
    from app.config.location import Location
    from app.run.progress import Figures

FOLDER = "_weir/progress"
WRITE_S, IN_STORE_S = 5.0, 60.0
"""A file is written at most this often, in a folder and in an object store."""
MS_PER_S = 1000.0


@dataclass(frozen=True)
class KeptFigures:
    """The figures that a file has for the metrics."""

    name: str
    batches: int
    events: int
    phases_ms: dict[str, int]
    batch_ms: int
    seen_ms: int
    latest_event_s: float | None
    state_bytes: int | None
    requests: dict[str, int] = field(default_factory=dict)


_DOCUMENT: Document[KeptFigures] = Document(KeptFigures)
_FIGURES: Document[dict[str, Any]] = Document(dict[str, Any])
"""The same file, with all figures."""


class Health:
    """Writes the figures of a run's queries."""

    def __init__(
        self,
        warehouse: Location,
        say: Callable[[str], None],
        requests: Callable[[], dict[str, int]] = dict,
    ) -> None:
        """`requests` counts those of Spark to an object store, by kind."""
        self._warehouse, self._requests = warehouse, requests
        self._say = say
        self._next_s = 0.0
        self._failed = False

    def look(self, figures: Iterable[Figures], *, last: bool = False) -> None:
        """Write the figures if it is time, or if these are the last. A run goes on without."""
        now_s = time.monotonic()
        if now_s < self._next_s and not last:
            return
        self._next_s = now_s + (WRITE_S if local_path(self._warehouse.uri) else IN_STORE_S)
        try:
            for number, one in enumerate(figures):
                one.requests = {} if number else self._requests()
                _FIGURES.keep(self._warehouse, f"{FOLDER}/{one.name}.json", asdict(one))
        except Exception as error:  # noqa: BLE001 - see above
            if not self._failed:
                self._say(f"progress: cannot be written for the metrics ({error})")
            self._failed = True


def samples(warehouse: Location) -> Iterator[Sample]:
    """The samples of every query that has run on the warehouse."""
    for name in names(warehouse, FOLDER):
        found = _DOCUMENT.usable(warehouse, f"{FOLDER}/{name}") if name.endswith(".json") else None
        if found:
            yield from _samples(found)


def _samples(found: KeptFigures) -> Iterator[Sample]:
    query = (found.name,)
    yield "weir_query_batches_total", query, found.batches
    yield "weir_query_records_total", query, found.events
    for phase, took_ms in found.phases_ms.items():
        yield "weir_query_phase_seconds_total", (*query, phase), took_ms / MS_PER_S
    for kind, count in found.requests.items():
        yield "weir_query_requests_total", (*query, kind), count
    yield "weir_query_batch_duration_seconds", query, found.batch_ms / MS_PER_S
    yield "weir_query_progress_timestamp_seconds", query, found.seen_ms / MS_PER_S
    for value, name in (
        (found.latest_event_s, "newest_event_timestamp_seconds"),
        (found.state_bytes, "state_bytes"),
    ):
        if value is not None:
            yield f"weir_query_{name}", query, value
