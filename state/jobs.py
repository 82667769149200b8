"""The jobs of this version, in order: one line here and one folder beside it for each."""

from __future__ import annotations

from state.backlog.declaration import DECLARATION as BACKLOG
from state.chunks.declaration import DECLARATION as CHUNKS
from state.client_quotas.declaration import DECLARATION as CLIENT_QUOTAS
from state.engine.declaration import Declaration
from state.entry_cache.declaration import DECLARATION as ENTRY_CACHE
from state.producer_ids.declaration import DECLARATION as PRODUCER_IDS
from state.rate_limits.declaration import DECLARATION as RATE_LIMITS

DECLARED: dict[str, Declaration] = {
    job.name: job
    for job in (RATE_LIMITS, CHUNKS, PRODUCER_IDS, BACKLOG, ENTRY_CACHE, CLIENT_QUOTAS)
}
JOBS: tuple[str, ...] = tuple(DECLARED)
BY_DEFAULT: tuple[str, ...] = tuple(name for name, job in DECLARED.items() if job.by_default)
"""The jobs of the query `govern`."""


def readers(kind: str) -> tuple[str, ...]:
    """The jobs that read a kind of events."""
    return tuple(name for name, job in DECLARED.items() if kind in job.kinds)
