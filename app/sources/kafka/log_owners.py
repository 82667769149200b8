"""Owners of producer ids: joins dumped batches with the assignments of request logs.

A producer id belongs to its cluster, and any broker may have assigned it. A transactional id gets
its producer id assigned again and again. The newest assignment at or before the time of a batch
holds, and before the first one the first, because a producer stamps a message before it requests
its id. An assignment holds from the arrival of its request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from app.sources.kafka.request_log import Assigned

Array = np.ndarray
Owner = tuple[str | None, str | None]
NOBODY: Owner = (None, None)


class Assignments(NamedTuple):
    """Assignments of some files as columns; `owner` counts in `owners`: (principal, client id)."""

    producer_id: Array
    at_ms: Array
    owner: Array
    owners: list[Owner]


def columns_of(found: Iterable[Assigned]) -> Assignments:
    """The assignments in their order."""
    places: dict[Owner, int] = {}
    ids: list[int] = []
    times: list[int] = []
    owners: list[int] = []
    for one in found:
        ids.append(one.producer_id)
        times.append(one.arrived_ms)
        owners.append(places.setdefault((one.principal, one.client_id), len(places)))
    return Assignments(
        np.array(ids, np.int64),
        np.array(times, np.int64),
        np.array(owners, np.int32),
        list(places),
    )


class LogOwners:
    """The assignments of all request logs, by producer id and time."""

    def __init__(self, parts: Sequence[Assignments]) -> None:
        """Of equal times the later part holds, and within a part the later line."""
        parts = [columns_of(()), *parts]
        begins = np.cumsum([0, *(len(part.owners) for part in parts)])
        ids = np.concatenate([part.producer_id for part in parts])
        at_ms = np.concatenate([part.at_ms for part in parts])
        owner = np.concatenate(
            [part.owner + begin for part, begin in zip(parts, begins[:-1], strict=True)]
        )
        order = np.lexsort((at_ms, ids))  # stable
        self._ids, self._at_ms, self._owner = ids[order], at_ms[order], owner[order]
        self._owners = [one for part in parts for one in part.owners]

    def of(self, ids: Sequence[int], times_ms: Sequence[int]) -> list[Owner]:
        """Principal and client id by producer id and time of a batch; NOBODY if none is known.

        The id -1 (no idempotence) has no owner.
        """
        wanted = np.array(ids, np.int64)
        first = np.searchsorted(self._ids, wanted, "left").tolist()
        end = np.searchsorted(self._ids, wanted, "right").tolist()
        return [
            NOBODY if a == b else self._owners[self._owner[self._place(a, b, at)]]
            for a, b, at in zip(first, end, times_ms, strict=True)
        ]

    def _place(self, first: int, end: int, at_ms: int) -> int:
        """The index of the assignment of one id that holds at a time."""
        if end - first == 1:
            return first
        after = first + int(np.searchsorted(self._at_ms[first:end], at_ms, "right"))
        return max(after - 1, first)
