"""`maxPendingChunkedMessage` of each consumer: that of the last pattern of its names, or of all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from state.chunks.layout import Array
from state.engine.globs import expression, full_pattern
from state.engine.names import Names
from udfs.topics import split_partition

Rule = tuple[str, str, str, int]
"""Patterns of topic, subscription and consumer, and the value."""


def rules_of(params: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The rules of the job's parameters, the one of all consumers first."""
    return ("**", "**", "**", int(params["maxPendingChunkedMessage"])), *(
        (
            full_pattern(one["topic"]),
            one["subscription"],
            one["consumer"],
            int(one["maxPendingChunkedMessage"]),
        )
        for one in params["consumers"]
    )


def most_pending(rules: tuple[Rule, ...], parts: Mapping[str, Array], names: Names) -> Array:
    """The value of each consumer of a shard."""
    consumers = parts["consumers"]
    if len(rules) == 1:
        return np.full(len(consumers), rules[0][-1], np.int64)
    topics = parts["keys"]["topic"][consumers["key"]].tolist()
    subscriptions = parts["subs"]["name"][consumers["sub"]].tolist()
    found = [
        _matched(rules, *(names.get(name) if name >= 0 else "" for name in of))
        for of in zip(topics, subscriptions, consumers["name"].tolist(), strict=True)
    ]
    return np.array(found, np.int64)


@lru_cache(maxsize=65536)
def _matched(rules: tuple[Rule, ...], topic: str, subscription: str, consumer: str) -> int:
    of = split_partition(topic)[0], subscription, consumer
    return next(
        rule[-1]
        for rule in reversed(rules)
        if all(expression(pattern).fullmatch(name) for pattern, name in zip(rule, of, strict=False))
    )
