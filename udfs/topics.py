"""Topic names: `[scheme://]tenant/namespace/name`, with `-partition-N` for one partition."""

from __future__ import annotations

import re
from typing import NamedTuple

PERSISTENT, NON_PERSISTENT = "persistent", "non-persistent"
INCOMPLETE, NOT_PERSISTENT = 1, 2
"""Flags of a name: not a full one of Pulsar; of a non-persistent topic."""
_PARTITION = re.compile(r"-partition-(0|[1-9][0-9]{0,9})\Z")


class Topic(NamedTuple):
    """The parts of a Pulsar topic name."""

    scheme: str
    tenant: str
    namespace: str
    """Without the tenant."""
    name: str
    """Local name without the ending of a partition."""
    partition: int | None


def split_topic(name: str) -> Topic | None:
    """The parts of a Pulsar topic name, or None without tenant, namespace and name.

    No scheme means persistent; what follows the namespace is the name, slashes included.
    """
    scheme, separator, rest = name.partition("://")
    if not separator:
        scheme, rest = PERSISTENT, name
    elif scheme not in (PERSISTENT, NON_PERSISTENT):
        return None
    parts = rest.split("/", 2)
    if len(parts) < 3 or not all(parts):
        return None
    local, partition = split_partition(parts[2])
    return Topic(scheme, parts[0], parts[1], local, partition)


def split_partition(name: str) -> tuple[str, int | None]:
    """A name without the ending `-partition-N`, and N; N is None without the ending."""
    found = _PARTITION.search(name)
    if found is None or found.start() == 0 or int(found[1]) > 2**31 - 1:
        return name, None
    return name[: found.start()], int(found[1])


def normal_topic(name: str, partition: int | None, kafka: bool = False) -> str:
    """The canonical spelling of a topic: with a scheme (not for Kafka) and the partition's ending.

    A negative partition means none. A name that already ends in `-partition-N` is unchanged.
    """
    if not kafka and "://" not in name:
        name = f"{PERSISTENT}://{name}"
    if partition is None or partition < 0:
        return name
    ending = f"-partition-{partition}"
    return name if name.endswith(ending) else name + ending


_EVENTS = (
    "__change_events",
    "__transaction_buffer_snapshot",
    "__transaction_buffer_snapshot_indexes",
    "__transaction_buffer_snapshot_segments",
)
_PENDING_ACKS = "__transaction_pending_ack"
_MARKS = ("__", "pulsar/", "sla-monitor/")
"""The name of every system topic has one of these."""
_SYSTEM_NAMESPACE = re.compile(r"pulsar/system|(?:pulsar|sla-monitor)/[^:]+:[0-9]+", re.ASCII)


def is_system_topic(name: str) -> bool:
    """Whether Pulsar's broker keeps a topic for itself, so that no quota or publish limit holds.

    The rule is that of release 4.2.4 (`BrokerService.isSystemTopic`): all topics of pulsar/system
    and of the namespaces of heartbeats, and topics of policies and transactions in any namespace.
    A partition is a system topic if its topic is one.
    """
    if not any(mark in name for mark in _MARKS):
        return False
    topic = split_topic(name)
    if topic is None:
        return False
    namespace = f"{topic.tenant}/{topic.namespace}"
    return (
        _SYSTEM_NAMESPACE.fullmatch(namespace) is not None
        or topic.name in _EVENTS
        or topic.name.endswith(_PENDING_ACKS)
    )
