"""Shards with all that rests in their arrays."""

from __future__ import annotations

import numpy as np

from state.backlog import resting as backlog_resting
from state.backlog import shard as backlog_shard
from state.client_quotas import shard as client_quota_shard
from state.engine.reach import Reach
from state.engine.structs import joined


def backlog(state: bytes) -> backlog_shard.Shard:
    """A shard of `backlog`."""
    s = backlog_shard.read(state)
    backlog_resting.wake(s, s.waiting, Reach(0), 0, everything=True)
    return s


def client_quotas(state: bytes) -> client_quota_shard.Shard:
    """A shard of `client_quotas`."""
    s = client_quota_shard.read(state)
    every = [s.parts, *(client_quota_shard.read_page(page, s.names) for page in s.resting.pages)]
    for name in every[-1] if s.resting.pages else ():
        parts = [each[name] for each in every]
        s.parts[name] = joined(parts) if parts[0].dtype.names else np.concatenate(parts)
    s.resting = s.resting.without(np.ones(len(s.resting), bool))
    return s
