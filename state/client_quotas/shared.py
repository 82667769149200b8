"""Shared records of brokers: limits of users and clients, and broker starts.

A document holds for the brokers that it came from. Where both the stream and the configuration set
limits of an entity, those of the stream hold, since they are what the brokers answered. See
`state.engine.wall_policies`.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from state.client_quotas.sequence import SEQUENCE
from state.engine import documents, wall_policies
from state.engine.globs import name_of_text
from state.engine.kernel import Array
from state.engine.names import NONE, Names
from state.engine.records import Records
from state.engine.wall_policies import Document, Settings
from state.policies import CLIENT_QUOTAS, QUOTA_KINDS

STARTS = np.int64(wall_policies.START)
USED = np.int64(1)
"""`what` of the first kind of document; `layout.OF_USER` and the others count from there."""
SCOPES = ("user", "client", documents.USER_CLIENT)
BOUNDS = ("produce", "fetch", "request", "mutation")
KINDS = ("remembered", "in_force")
"""What a broker does when the last limit of a kind goes."""
_NO_BOUND = float("nan")

MEANING = np.dtype(
    [
        ("what", "<i8"),
        ("name", "<i8"),
        ("user", "<i8"),
        ("client", "<i8"),
        *((bound, "<f8") for bound in BOUNDS),
        ("kinds", "<i8"),
        ("fresh", "<i8"),
    ],
    align=True,
)
"""A shared record: a broker start, or the bounds of an entity (NaN: none) with its user and client,
-1 for the default and for the one that it has not. `kinds`: as KINDS has them, -1 where the document
does not say."""


@lru_cache(maxsize=65536)
def _parsed(text: str) -> Document | None:
    scope, name, limits = documents.parsed(text)
    if scope not in SCOPES:
        return None
    bounds = (limits.get(key) for key in CLIENT_QUOTAS)
    values = (_NO_BOUND if bound is None else float(bound) for bound in bounds)
    said = json.loads(text).get(QUOTA_KINDS)
    kinds = KINDS.index(said) if said in KINDS else NONE
    return int(USED) + SCOPES.index(scope), name, (NONE, NONE, *values, kinds)


@lru_cache(maxsize=65536)
def _entity(scope: int, name: str) -> tuple[str | None, str | None]:
    """User and client id of a document; None for the default and for the one that it has not."""
    if SCOPES[scope] == documents.USER_CLIENT:
        user, client = documents.pair_of(name)
        return name_of_text(user), name_of_text(client)
    one = name_of_text(name)
    return (one, None) if SCOPES[scope] == "user" else (None, one)


class ClientLimits(wall_policies.SharedRecords):
    """Documents and broker starts as this job reads them."""

    sequence = SEQUENCE
    meaning = MEANING
    broker = -2
    settings = ()
    unset = 0
    by_origin = True
    start = (NONE, NONE, *(_NO_BOUND,) * len(BOUNDS))

    def parsed(self, text: str) -> Document | None:
        """The content of a document; None for one that this job does not use."""
        return _parsed(text)

    def sets(self, meaning: Array) -> Array:
        """Which documents set something."""
        found = np.zeros(len(meaning), bool)
        for bound in BOUNDS:
            found |= ~np.isnan(meaning[bound])
        return found

    def in_force(self, settings: Settings) -> tuple[Any, ...]:
        """Brokers have no settings for this job."""
        return ()

    def meanings(self, records: Records, names: Names) -> Array:
        """The content of each shared record, with the names of its user and client."""
        found = super().meanings(records, names)
        rows = np.flatnonzero(np.isin(found["what"] - USED, range(len(SCOPES))))
        scopes, of = (found["what"][rows] - USED).tolist(), names.texts(found["name"][rows])
        every = [_entity(scope, name) for scope, name in zip(scopes, of, strict=True)]
        for at, field in enumerate(("user", "client")):
            found[field][rows] = names.intern(pa.array([one[at] for one in every], pa.string()))
        return found


LIMITS = ClientLimits()
