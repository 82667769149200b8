"""Requests of clients, by the lines of a broker's request log: what its quotas charge them for.

The log has no sizes of requests. They follow from what it has: names, numbers of topics and
partitions and the bytes of their records, in the layout of each version by Kafka's message
definitions; `tests/spark/test_request_sizes.py` compares every version with the client's own. A
broker charges the size of a PRODUCE with its header; of an answer to FETCH its correlation id and
body. Of one to SHARE_FETCH the log has no bytes of records, at least up to Kafka 4.4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from functools import cache
from typing import Annotated, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from app.sources.kafka.request_log import LONGEST_MS, MARKER, NotParsedError, looks_like, time_of

PRODUCE, FETCH, METADATA, CREATE_TOPICS, CREATE_PARTITIONS = 0, 1, 3, 19, 37
NEWEST = {PRODUCE: 13, FETCH: 18}
"""Newest versions whose layout is known."""
EXEMPT = frozenset(
    (
        "ALTER_PARTITION",
        "BEGIN_QUORUM_EPOCH",
        "CONTROLLED_SHUTDOWN",
        "END_QUORUM_EPOCH",
        "FETCH_SNAPSHOT",
        "LEADER_AND_ISR",
        "STOP_REPLICA",
        "UPDATE_METADATA",
        "UPDATE_RAFT_VOTER",
        "VOTE",
        "WRITE_TXN_MARKERS",
    )
)
"""Requests within the cluster, which the request quota does not charge."""
MOST_TOPICS = 64
"""Of a request by name; the others are one."""
CREATED, REFUSED = 0, 89
"""Errors of a topic whose partitions were tested: none, and THROTTLING_QUOTA_EXCEEDED."""
_API = re.compile(rb'"requestApiKey"\s*:\s*([0-9]{1,5})\s*[,}]')
_METADATA = r'"requestApiKey"\s*:\s*3\s*[,}]'
TopicNames = Callable[[], Mapping[str, str]]
"""Names of topics by their ids."""


class ClientRequest(NamedTuple):
    """A request by the columns of the contract."""

    ts_wall_ms: int
    principal: str | None
    client_id: str | None
    api: str
    charged_bytes: int | None
    handler_time_ns: int | None
    mutations: int | None
    throttle_ms: int | None
    exempt: bool
    topic_bytes: str | None
    api_version: int


# -- the JSON of a line ----------------------------------------------------------------------


_Version = Annotated[int, msgspec.Meta(ge=0, lt=1 << 15)]
_Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
_Count = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]
_Ms = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_MS)]


class _Struct(msgspec.Struct, gc=False):
    pass


class _RequestHeader(_Struct):
    requestApiKey: int
    requestApiVersion: _Version
    requestApiKeyName: str
    clientId: str | None = None


class _Line(_Struct):
    requestHeader: _RequestHeader
    principal: str | None = None
    isForwarded: bool = False
    localTimeMs: _Ms | None = None
    throttleTimeMs: _Ms | None = None
    responseQueueTimeMs: _Ms = 0.0
    sendTimeMs: _Ms = 0.0


class _Partition(_Struct):
    """Records of a partition, sent or fetched."""

    recordsSizeInBytes: _Size | None = None
    records: Any = msgspec.UNSET
    abortedTransactions: list[msgspec.Raw] | None = None
    divergingEpoch: Any = msgspec.UNSET
    currentLeader: Any = msgspec.UNSET
    snapshotId: Any = msgspec.UNSET


class _Sent(_Struct, rename={"partitions": "partitionData"}):
    partitions: list[_Partition]
    name: str | None = None
    topicId: str | None = None


class _Produce(_Struct):
    acks: int
    topicData: list[_Sent]
    transactionalId: str | None = None


class _ProduceLine(_Line, kw_only=True):
    request: _Produce | str


class _Fetched(_Struct, rename={"name": "topic"}):
    partitions: list[_Partition]
    name: str | None = None
    topicId: str | None = None


class _Replica(_Struct):
    replicaId: int = -1


class _Fetch(_Replica):
    replicaState: _Replica | None = None


class _Endpoint(_Struct):
    """A leader that the client does not know yet."""

    host: str
    rack: str | None = None


class _FetchAnswer(_Struct):
    responses: list[_Fetched]
    nodeEndpoints: list[_Endpoint] = []


class _FetchLine(_Line, kw_only=True):
    request: _Fetch | str
    response: _FetchAnswer | str


class _Throttled(_Struct):
    throttleTimeMs: _Size = 0


class _OtherLine(_Line, kw_only=True):
    response: _Throttled | str = ""


class _Topic(_Struct):
    name: str | None = None
    topicId: str | None = None
    errorCode: int = 0
    numPartitions: _Count = -1
    assignments: list[msgspec.Raw] | None = None


class _Topics(_Throttled):
    topics: list[_Topic] = []
    results: list[_Topic] = []


class _TopicsLine(_Line, kw_only=True):
    request: _Topics | str
    response: _Topics | str


class _MetadataLine(_Struct):
    response: _Topics | str


_OTHER = msgspec.json.Decoder(_OtherLine)
_DECODERS: dict[int, msgspec.json.Decoder[Any]] = {
    PRODUCE: msgspec.json.Decoder(_ProduceLine),
    FETCH: msgspec.json.Decoder(_FetchLine),
    CREATE_TOPICS: msgspec.json.Decoder(_TopicsLine),
    CREATE_PARTITIONS: msgspec.json.Decoder(_TopicsLine),
}
_NAMING = msgspec.json.Decoder(_MetadataLine)


def parse(line: bytes, zone: tzinfo, logged: bool, names: TopicNames) -> ClientRequest:
    """The request of a line with MARKER; NotParsedError for a malformed one.

    Its time is that of the charge, or with `logged` that of the line.
    """
    at = line.find(MARKER)
    given = _API.search(line, max(at, 0))
    if at < 0 or given is None:
        raise NotParsedError("not the JSON of a request: no requestApiKey")
    api = int(given[1])
    one = _decoded(_DECODERS.get(api, _OTHER), line, at)
    header = one.requestHeader
    if header.requestApiKey != api:
        raise NotParsedError("more than one request in the line")
    charged = topics = mutations = None
    exempt, throttle_ms = header.requestApiKeyName in EXEMPT, one.throttleTimeMs
    if api == PRODUCE:
        if not isinstance(one.request, str):
            charged, topics = _produced(header, one.request, names)
            exempt = one.request.acks == 0
    elif api == FETCH:
        if not isinstance(one.request, str):
            state = one.request.replicaState or one.request
            exempt = max(one.request.replicaId, state.replicaId) >= 0
        # The answer to a throttled request is empty; what was charged is not in the log.
        if not isinstance(one.response, str) and (one.response.responses or not throttle_ms):
            charged, topics = _fetched(header, one.response, names)
    else:
        if not isinstance(one.response, str):
            throttle_ms = max(throttle_ms or 0, one.response.throttleTimeMs)
        if api in _DECODERS and one.isForwarded:
            mutations = _mutations(api, one)
    back_ms = 0.0 if logged else one.responseQueueTimeMs + one.sendTimeMs
    handler_ms = one.localTimeMs
    return ClientRequest(
        int(time_of(line[:at], zone) - back_ms),
        one.principal,
        header.clientId,
        header.requestApiKeyName,
        charged,
        # The controller charges a forwarded request to its own sensors.
        None if handler_ms is None or one.isForwarded else round(handler_ms * 1000) * 1000,
        mutations,
        None if throttle_ms is None else int(throttle_ms),
        exempt,
        topics,
        header.requestApiVersion,
    )


def names_topics(values: pa.Array) -> pa.Array:
    """Lines of completed requests that give names of topics (bool)."""
    return pc.and_(looks_like(values), pc.match_substring_regex(values, _METADATA))


def topic_names(lines: Iterable[bytes]) -> dict[str, str]:
    """Names of topics by their ids, of lines of `names_topics`."""
    found = {"AAAAAAAAAAAAAAAAAAAAAQ": "__cluster_metadata"}
    for line in lines:
        try:
            answer = _decoded(_NAMING, line, line.find(MARKER)).response
        except Exception:  # noqa: BLE001 - refused where it is read as a request
            continue
        for topic in answer.topics if isinstance(answer, _Topics) else ():
            if topic.name is not None and topic.topicId is not None:
                found[topic.topicId] = topic.name
    return found


def _decoded(decoder: msgspec.json.Decoder[Any], line: bytes, at: int) -> Any:
    try:
        return decoder.decode(line[at + len(MARKER) : line.rfind(b"}") + 1])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotParsedError(f"not the JSON of a request: {error}") from None


# -- sizes -----------------------------------------------------------------------------------


def _varint(number: int) -> int:
    """Bytes of an unsigned varint."""
    return 1 if number < 1 << 7 else 2 if number < 1 << 14 else (number.bit_length() + 6) // 7


def _string(text: str | None, flexible: bool = False) -> int:
    """Bytes of a string, null or not, with its length."""
    size = 0 if text is None else len(text) if text.isascii() else len(text.encode())
    return size + (2 if not flexible else 1 if text is None else _varint(size + 1))


class _VersionLayout(NamedTuple):
    """How topics and their partitions are laid out in a version."""

    flexible: bool
    by_id: bool
    partition_bytes: int
    """Of a partition, besides its records and what is optional."""
    aborted: bool = False
    """Whether a partition has a list of aborted transactions."""

    def length(self, elements: int) -> int:
        """Bytes of the length of an array."""
        return _varint(elements + 1) if self.flexible else 4


_TAGS = 1
"""Bytes of the tagged fields of a flexible structure that has none."""
_DIVERGING, _LEADER, _SNAPSHOT = 2 + 13, 2 + 9, 2 + 13
"""Bytes of tagged fields of a fetched partition."""


@cache
def _produce_layout(version: int) -> _VersionLayout:
    flexible = version >= 9
    return _VersionLayout(flexible, version >= 13, 4 + flexible * _TAGS)


@cache
def _fetch_layout(version: int) -> _VersionLayout:
    flexible = version >= 12
    fixed = 4 + 2 + 8 + 8 * (version >= 4) + 8 * (version >= 5) + 4 * (version >= 11)
    return _VersionLayout(flexible, version >= 13, fixed + flexible * _TAGS, version >= 4)


def _produced(
    header: _RequestHeader, request: _Produce, names: TopicNames
) -> tuple[int | None, str | None]:
    """Bytes of a request, and those of its topics."""
    version = header.requestApiVersion
    if version > NEWEST[PRODUCE]:
        return None, None
    layout = _produce_layout(version)
    fixed = 2 + 2 + 4 + _string(header.clientId) + 2 + 4 + 2 * layout.flexible * _TAGS
    if version >= 3:
        fixed += _string(request.transactionalId, layout.flexible)
    return _sized(fixed, request.topicData, layout, names)


def _fetched(
    header: _RequestHeader, answer: _FetchAnswer, names: TopicNames
) -> tuple[int | None, str | None]:
    """Bytes of an answer, and those of its topics."""
    version = header.requestApiVersion
    if version > NEWEST[FETCH]:
        return None, None
    layout = _fetch_layout(version)
    fixed = 4 + 4 * (version >= 1) + 6 * (version >= 7) + layout.flexible * _TAGS
    return _sized(fixed + _leaders(answer.nodeEndpoints), answer.responses, layout, names)


def _leaders(endpoints: Sequence[_Endpoint]) -> int:
    """Bytes of the tagged field that tells where the leaders are."""
    if not endpoints:
        return 0
    size = _varint(len(endpoints) + 1)
    for endpoint in endpoints:
        size += 4 + _string(endpoint.host, True) + 4 + _string(endpoint.rack, True) + _TAGS
    return 1 + _varint(size) + size


def _sized(
    fixed: int, topics: Sequence[_Sent | _Fetched], layout: _VersionLayout, names: TopicNames
) -> tuple[int | None, str | None]:
    """Bytes of a message with these topics, and those of the topics; None where they are not
    known."""
    flexible, by_id, partition_bytes, aborted = layout
    total = fixed + layout.length(len(topics))
    amounts: dict[str, int] = {}
    for topic in topics:
        total += 16 if by_id else _string(topic.name, flexible)
        total += layout.length(len(topic.partitions)) + flexible * _TAGS
        records = 0
        for partition in topic.partitions:
            size = partition.recordsSizeInBytes
            if size is None:
                if partition.records is not None:
                    return None, None
                total += partition_bytes + (1 if flexible else 4)
            else:
                records += size
                total += partition_bytes + size + (_varint(size + 1) if flexible else 4)
            if aborted:
                total += _optional(partition, layout)
        name = topic.name
        if name is None and topic.topicId is not None:
            name = names().get(topic.topicId, topic.topicId)
        if name is not None:
            amounts[name] = amounts.get(name, 0) + records
    return total, _text(amounts)


def _optional(partition: _Partition, layout: _VersionLayout) -> int:
    """Bytes of aborted transactions and tagged fields of a fetched partition."""
    found = partition.abortedTransactions
    if not layout.flexible:
        return 4 + 16 * len(found or ())
    size = 1 if found is None else layout.length(len(found)) + (16 + _TAGS) * len(found)
    size += _DIVERGING * (partition.divergingEpoch is not msgspec.UNSET)
    size += _LEADER * (partition.currentLeader is not msgspec.UNSET)
    return size + _SNAPSHOT * (partition.snapshotId is not msgspec.UNSET)


def _text(amounts: dict[str, int]) -> str | None:
    if len(amounts) > MOST_TOPICS:
        largest = sorted(amounts, key=amounts.__getitem__, reverse=True)
        others = sum(amounts[name] for name in largest[MOST_TOPICS:])
        amounts = {name: amounts[name] for name in largest[:MOST_TOPICS]} | {"": others}
    return msgspec.json.encode(amounts).decode() if amounts else None


# -- mutations -------------------------------------------------------------------------------


def _mutations(api: int, line: _TopicsLine) -> int | None:
    """Partitions that a controller has created or, if none, refused to create; None where there are
    none of either, and where the log does not say how many.

    Topics are charged one after the other: those that it refuses are not charged.
    """
    if isinstance(line.request, str) or isinstance(line.response, str):
        return None
    answers = {topic.name: topic for topic in line.response.topics or line.response.results}
    counts: dict[int, list[int]] = {CREATED: [], REFUSED: []}
    for topic in line.request.topics:
        answer = answers.get(topic.name)
        if answer is None or answer.errorCode not in counts:
            continue
        count = len(topic.assignments or ())
        if api == CREATE_TOPICS and not count:
            count = max(answer.numPartitions, topic.numPartitions)
        counts[answer.errorCode].append(count)
    found = counts[CREATED] or counts[REFUSED]
    return sum(found) if found and min(found) > 0 else None
