"""Weir's SQL functions: name, types, meaning, an example, and the implementation over Arrow arrays.

One definition for Spark (`udfs.spark`), DuckDB (`udfs.duckdb`) and docs/functions.md.
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from udfs.base64 import decode_base64
from udfs.decoding import sender_of
from udfs.hashing import hash_strings, shard_of
from udfs.positions import parse_positions
from udfs.topics import Topic, normal_topic, split_topic
from udfs.users import user_of

Array = np.ndarray
MOST_SHARDS = 2**31 - 1
_TEXT, _BINARY, _LONG, _INT = pa.string(), pa.binary(), pa.int64(), pa.int32()


@dataclass(frozen=True)
class Function:
    """A function from arrays of the types `takes`, all of one length, to an array of type `gives`."""

    name: str
    takes: tuple[tuple[str, pa.DataType], ...]
    gives: pa.DataType
    meaning: str
    example: str
    """A call with constants that both engines accept."""
    answer: Any
    """What it gives."""
    of: Callable[..., pa.Array]


def _mask(values: pa.Array) -> Array:
    mask: Array = values.is_null().to_numpy(zero_copy_only=False)
    return mask


def _numbers(found: Array, gives: pa.DataType, missing: Array) -> pa.Array:
    return pa.array(found, gives, mask=missing)


def _hash64(values: pa.Array) -> pa.Array:
    return _numbers(hash_strings(values), _LONG, _mask(values))


def _shard(values: pa.Array, shards: pa.Array) -> pa.Array:
    hashes = hash_strings(values)
    counts = shards.fill_null(1).to_numpy(zero_copy_only=False)
    numbers = np.zeros(len(hashes), np.int32)
    for count in np.unique(counts).tolist():
        if not 1 <= count <= MOST_SHARDS:
            raise ValueError(f"weir_shard: {count} shards (allowed: 1 to {MOST_SHARDS})")
        here = counts == count
        numbers[here] = shard_of(hashes[here], count)
    return _numbers(numbers, _INT, _mask(values) | _mask(shards))


def _by_distinct(function: Callable[[Any], Any], gives: pa.DataType) -> Callable[..., pa.Array]:
    """The result of a function for each value, computed once per distinct one."""

    def of(values: pa.Array) -> pa.Array:
        coded = values.dictionary_encode()
        answers = pa.array([function(value) for value in coded.dictionary.to_pylist()], gives)
        return answers.take(coded.indices)

    return of


def _topic(part: Callable[[Topic], Any], gives: pa.DataType = _TEXT) -> Callable[..., pa.Array]:
    def resolved(name: str) -> Any:
        topic = split_topic(name)
        return None if topic is None else part(topic)

    return _by_distinct(resolved, gives)


def _position(part: int) -> Callable[..., pa.Array]:
    def of(values: pa.Array) -> pa.Array:
        found = parse_positions(values)
        return _numbers(found[part], _LONG, _mask(values) | ~found[2])

    return of


def _each(function: Callable[[bytes], Any], gives: pa.DataType) -> Callable[..., pa.Array]:
    def of(values: pa.Array) -> pa.Array:
        return pa.array([None if v is None else function(v) for v in values.to_pylist()], gives)

    return of


def _from_base64(texts: pa.Array) -> pa.Array:
    decoded, ok = decode_base64(texts.fill_null(""))
    missing = _mask(texts) | ~ok
    return pa.array(decoded.to_pylist(), _BINARY, mask=missing) if missing.any() else decoded


_SENDER = pa.struct([("producer_name", _TEXT), ("sequence_id", _LONG)])


def _fields(function: Callable[[Any], dict[str, Any] | None], gives: pa.DataType) -> Any:
    """A function that returns a struct. Without a value every field is null, because not both
    engines support a null struct.
    """
    nothing = dict.fromkeys(field.name for field in gives)

    def of(values: pa.Array) -> pa.Array:
        found = (None if v is None else function(v) for v in values.to_pylist())
        return pa.array([nothing if one is None else one for one in found], gives)

    return of


_NAME = "'acme/orders/created-partition-3'"

_ALL = (
    Function(
        "weir_hash64",
        (("text", _TEXT),),
        _LONG,
        "The hash by which Weir finds a name: the first 64 bits of MurmurHash3 (x64, 128 bit,"
        " seed 0), signed.",
        "weir_hash64('acme/orders/created')",
        -6034596863280139474,
        _hash64,
    ),
    Function(
        "weir_shard",
        (("text", _TEXT), ("shards", _LONG)),
        _INT,
        "The shard of a name: its unsigned hash modulo the number of shards, which is 1 or"
        " more; another number is refused.",
        "weir_shard('acme/orders/created', 16)",
        14,
        _shard,
    ),
    Function(
        "weir_topic",
        (("topic", _TEXT),),
        _TEXT,
        "A Pulsar topic as the tables spell it: with its scheme.",
        f"weir_topic({_NAME})",
        "persistent://acme/orders/created-partition-3",
        _by_distinct(lambda name: normal_topic(name, None), _TEXT),
    ),
    Function(
        "weir_topic_tenant",
        (("topic", _TEXT),),
        _TEXT,
        "The tenant of a topic; null for a name without tenant, namespace and name.",
        f"weir_topic_tenant({_NAME})",
        "acme",
        _topic(lambda topic: topic.tenant),
    ),
    Function(
        "weir_topic_namespace",
        (("topic", _TEXT),),
        _TEXT,
        "The namespace of a topic as `tenant/namespace`.",
        f"weir_topic_namespace({_NAME})",
        "acme/orders",
        _topic(lambda topic: f"{topic.tenant}/{topic.namespace}"),
    ),
    Function(
        "weir_topic_name",
        (("topic", _TEXT),),
        _TEXT,
        "The local name of a topic, without the ending of a partition.",
        f"weir_topic_name({_NAME})",
        "created",
        _topic(lambda topic: topic.name),
    ),
    Function(
        "weir_topic_partition",
        (("topic", _TEXT),),
        _INT,
        "The number of the partition; null for a topic that is none.",
        f"weir_topic_partition({_NAME})",
        3,
        _topic(lambda topic: topic.partition, _INT),
    ),
    Function(
        "weir_position_ledger",
        (("position", _TEXT),),
        _LONG,
        "The ledger of a position `ledger:entry`; null for other texts.",
        "weir_position_ledger('70001:-1')",
        70001,
        _position(0),
    ),
    Function(
        "weir_position_entry",
        (("position", _TEXT),),
        _LONG,
        "The entry of a position `ledger:entry`; null for other texts.",
        "weir_position_entry('70001:-1')",
        -1,
        _position(1),
    ),
    Function(
        "weir_user",
        (("principal", _TEXT),),
        _TEXT,
        "The user of a principal such as `User:alice`, as quotas of producer ids name it: what"
        " follows the first colon, all of it without one.",
        "weir_user('User:alice')",
        "alice",
        user_of,
    ),
    Function(
        "weir_crc32",
        (("payload", _BINARY),),
        _LONG,
        "CRC-32 of a payload: the `checksum` of `chunk_messages`.",
        "weir_crc32(weir_from_base64('aGVsbG8='))",
        907060870,
        _each(zlib.crc32, _LONG),
    ),
    Function(
        "weir_to_base64",
        (("payload", _BINARY),),
        _TEXT,
        "A payload as text, as records in JSON carry it: standard alphabet, padded.",
        "weir_to_base64(weir_from_base64('aGVsbG8='))",
        "aGVsbG8=",
        _each(lambda data: binascii.b2a_base64(data, newline=False).decode(), _TEXT),
    ),
    Function(
        "weir_from_base64",
        (("text", _TEXT),),
        _BINARY,
        "The payload of such a text; null for one that is not base64.",
        "weir_from_base64('aGVsbG8=')",
        b"hello",
        _from_base64,
    ),
    Function(
        "weir_chunk_sender",
        (("uuid", _TEXT),),
        _SENDER,
        "Producer name and sequence id in the uuid of a chunked message.",
        "weir_chunk_sender('etl-7-42')",
        {"producer_name": "etl-7", "sequence_id": 42},
        _fields(sender_of, _SENDER),
    ),
)
FUNCTIONS: dict[str, Function] = {function.name: function for function in _ALL}
"""Every function by its name. Null input gives null, or a struct of nulls."""
