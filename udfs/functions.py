"""Weir's SQL functions: name, type, meaning, an example, and the implementation over Arrow arrays.

One definition for Spark (`udfs.spark`), DuckDB (`udfs.duckdb`) and docs/functions.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from udfs.topics import Topic, normal_topic, split_topic
from udfs.users import user_of

_TEXT, _INT = pa.string(), pa.int32()


@dataclass(frozen=True)
class Function:
    """A function from an array of texts, `takes`, to an array of type `gives` of the same length."""

    name: str
    takes: str
    gives: pa.DataType
    meaning: str
    example: str
    """A call with constants that both engines accept."""
    answer: Any
    """What it gives."""
    of: Callable[[pa.Array], pa.Array]


def _by_distinct(
    function: Callable[[Any], Any], gives: pa.DataType
) -> Callable[[pa.Array], pa.Array]:
    """The result of a function for each value, computed once per distinct one."""

    def of(values: pa.Array) -> pa.Array:
        coded = values.dictionary_encode()
        answers = pa.array([function(value) for value in coded.dictionary.to_pylist()], gives)
        return answers.take(coded.indices)

    return of


def _topic(
    part: Callable[[Topic], Any], gives: pa.DataType = _TEXT
) -> Callable[[pa.Array], pa.Array]:
    def resolved(name: str) -> Any:
        topic = split_topic(name)
        return None if topic is None else part(topic)

    return _by_distinct(resolved, gives)


_NAME = "'acme/orders/created-partition-3'"

_ALL = (
    Function(
        "weir_topic",
        "topic",
        _TEXT,
        "A Pulsar topic as the tables spell it: with its scheme.",
        f"weir_topic({_NAME})",
        "persistent://acme/orders/created-partition-3",
        _by_distinct(lambda name: normal_topic(name, None), _TEXT),
    ),
    Function(
        "weir_topic_tenant",
        "topic",
        _TEXT,
        "The tenant of a topic; null for a name without tenant, namespace and name.",
        f"weir_topic_tenant({_NAME})",
        "acme",
        _topic(lambda topic: topic.tenant),
    ),
    Function(
        "weir_topic_namespace",
        "topic",
        _TEXT,
        "The namespace of a topic as `tenant/namespace`.",
        f"weir_topic_namespace({_NAME})",
        "acme/orders",
        _topic(lambda topic: f"{topic.tenant}/{topic.namespace}"),
    ),
    Function(
        "weir_topic_name",
        "topic",
        _TEXT,
        "The local name of a topic, without the ending of a partition.",
        f"weir_topic_name({_NAME})",
        "created",
        _topic(lambda topic: topic.name),
    ),
    Function(
        "weir_topic_partition",
        "topic",
        _INT,
        "The number of the partition; null for a topic that is none.",
        f"weir_topic_partition({_NAME})",
        3,
        _topic(lambda topic: topic.partition, _INT),
    ),
    Function(
        "weir_user",
        "principal",
        _TEXT,
        "The user of a principal such as `User:alice`, as quotas of producer ids name it: what"
        " follows the first colon, all of it without one.",
        "weir_user('User:alice')",
        "alice",
        user_of,
    ),
)
FUNCTIONS: dict[str, Function] = {function.name: function for function in _ALL}
"""Every function by its name. Null input gives null."""
