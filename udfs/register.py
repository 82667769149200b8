"""Weir's column functions by name, for users' own SQL in Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import pandas_udf

from udfs.hashing import hash_strings, shard_of
from udfs.positions import parse_positions
from udfs.topics import Topic, normal_topic, split_topic


def register(spark: SparkSession) -> tuple[str, ...]:
    """Register every function in a session, under the names that are returned.

    A null gives null; a topic without tenant, namespace and name, and a position that is not
    `ledger:entry`, give null as well.
    """
    # its overloads know functions only by their annotations
    make: Any = pandas_udf
    for name, (kind, function) in FUNCTIONS.items():
        spark.udf.register(name, make(function, kind))
    return tuple(FUNCTIONS)


def _strings(values: pd.Series) -> pa.Array:
    return pa.Array.from_pandas(values, type=pa.string())


def _nullable(numbers: Any, values: pa.Array, ok: Any = None) -> pd.Series:
    missing = values.is_null().to_numpy(zero_copy_only=False)
    if ok is not None:
        missing = missing | ~ok
    return pd.Series(pd.arrays.IntegerArray(numbers.astype(np.int64), missing.astype(bool)))


def _hash64(values: pd.Series) -> pd.Series:
    strings = _strings(values)
    return _nullable(hash_strings(strings), strings)


def _shard(values: pd.Series, shards: pd.Series) -> pd.Series:
    strings = _strings(values)
    hashes = hash_strings(strings)
    numbers = np.zeros(len(hashes), np.int64)
    for count in shards.dropna().unique():
        here = (shards == count).to_numpy(bool)
        numbers[here] = shard_of(hashes[here], int(count))
    return _nullable(numbers, strings, ~shards.isna().to_numpy(bool))


def _by_distinct(values: pd.Series, function: Callable[[str], Any]) -> Iterator[Any]:
    """What a function says of each value, asked once per distinct one."""
    known: dict[str, Any] = {}
    for value in values:
        if value is None or value is pd.NA:
            yield None
        elif value in known:
            yield known[value]
        else:
            known[value] = function(value)
            yield known[value]


def _part(of: Callable[[Topic], str]) -> Callable[[pd.Series], pd.Series]:
    def part(values: pd.Series) -> pd.Series:
        def told(name: str) -> str | None:
            topic = split_topic(name)
            return None if topic is None else of(topic)

        return pd.Series(list(_by_distinct(values, told)), dtype=object)

    return part


def _partition(values: pd.Series) -> pd.Series:
    def told(name: str) -> int | None:
        topic = split_topic(name)
        return None if topic is None else topic.partition

    return pd.Series(list(_by_distinct(values, told)), dtype="Int32")


def _normal(values: pd.Series) -> pd.Series:
    spelt = _by_distinct(values, lambda name: normal_topic(name, None))
    return pd.Series(list(spelt), dtype=object)


def _ledger(values: pd.Series) -> pd.Series:
    strings = _strings(values)
    ledger, _, ok = parse_positions(strings)
    return _nullable(ledger, strings, ok)


def _entry(values: pd.Series) -> pd.Series:
    strings = _strings(values)
    _, entry, ok = parse_positions(strings)
    return _nullable(entry, strings, ok)


FUNCTIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "weir_hash64": ("bigint", _hash64),
    "weir_shard": ("int", _shard),
    "weir_topic": ("string", _normal),
    "weir_topic_tenant": ("string", _part(lambda topic: topic.tenant)),
    "weir_topic_namespace": ("string", _part(lambda topic: f"{topic.tenant}/{topic.namespace}")),
    "weir_topic_name": ("string", _part(lambda topic: topic.name)),
    "weir_topic_partition": ("int", _partition),
    "weir_position_ledger": ("bigint", _ledger),
    "weir_position_entry": ("bigint", _entry),
}
"""Spark type and function of each name."""
