"""Limits of Pulsar as commands of `pulsar-admin`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.show.policy.export.exported import (
    MOST_OF_INT,
    Document,
    Exported,
    NotExported,
    number,
    operand,
    option,
    script,
    why_no_name,
    without,
)
from app.terminal.program import PROGRAM
from state.engine.documents import full_topic_name

SCOPES = ("broker", "resource_group", "namespace", "topic")
"""Scopes of Pulsar; a resource group exists before a namespace is in it."""
DYNAMIC = (
    "maxPublishRatePerTopicInMessages",
    "maxPublishRatePerTopicInBytes",
    "brokerPublisherThrottlingMaxMessageRate",
    "brokerPublisherThrottlingMaxByteRate",
    "resourceUsageTransportPublishIntervalInSecs",
    "maxMessagePublishBufferSizeInMB",
    "managedLedgerCacheSizeMB",
    "managedLedgerCacheEvictionWatermark",
    "managedLedgerCacheEvictionTimeThresholdMillis",
    "managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed",
    "managedLedgerMinimumBacklogCursorsForCaching",
)
"""Settings of brokers that can be changed while they run (ServiceConfiguration of 4.2)."""
MSGS, BYTES, TTL = "publishRateInMsgs", "publishRateInBytes", "message_ttl_in_seconds"
LIMITS = {
    "destination_storage": ("limitSize", "--limit"),
    "message_age": ("limitTime", "--limitTime"),
}
"""The limit that counts in each type of backlog quota, and its option."""
SCRIPT = f"""\
#!/bin/sh
# Written by {PROGRAM} policy export. Limits that are not named here stay as they are.
# PULSAR_ADMIN   the tool, where it is not pulsar-admin
set -eu
admin() {{ "${{PULSAR_ADMIN:-pulsar-admin}}" "$@"; }}
"""
Line = str | NotExported


def pulsar_admin(documents: Sequence[Document]) -> Exported:
    """A shell script with the commands for each document."""
    ranked = sorted(documents, key=lambda d: d["scope"] in SCOPES and SCOPES.index(d["scope"]))
    lines = [line for document in ranked for line in _lines(document)]
    commands = [line for line in lines if isinstance(line, str)]
    left_out = [line for line in lines if isinstance(line, NotExported)]
    return Exported(script(SCRIPT, commands), left_out)


def _lines(document: Document) -> Iterator[Line]:
    """The commands of a document, and the limits that have none."""
    scope, name = document["scope"], document["name"]
    why = why_no_name(document)
    if why is None and scope not in SCOPES:
        why = "is no limit of Pulsar"
    elif scope == "broker" and name != "*":
        why = "a dynamic configuration is that of all brokers"
    elif scope == "topic" and "://" not in full_topic_name(name):
        why = "is a topic of Kafka"
    if why is not None:
        yield from without(document, why)
    elif scope == "broker":
        yield from _of_brokers(document)
    elif scope == "resource_group":
        yield from _rates(document, "resourcegroups create", name)
    elif scope == "namespace":
        yield from _rates(document, "namespaces set-publish-rate", name)
        yield from _others(document, "namespaces", name)
    else:
        topic = full_topic_name(name)
        yield from _rates(document, "topicPolicies set-publish-rate", topic)
        yield from _others(document, "topicPolicies", topic)


def _of_brokers(document: Document) -> Iterator[Line]:
    limits = document["limits"]
    for key in DYNAMIC:
        if key in limits:
            value = limits[key]
            text = str(value).lower() if isinstance(value, bool) else number(value)
            yield f"admin brokers update-dynamic-config --config {key} --value={text}"
    why = "is read when a broker starts, from broker.conf"
    yield from without(document, why, *DYNAMIC)


def _rates(document: Document, command: str, name: str) -> Iterator[Line]:
    """Both rates in one command; a rate that a level lacks is off."""
    limits = document["limits"]
    if MSGS not in limits and BYTES not in limits:
        return
    msgs, size = (number(limits.get(key, -1)) for key in (MSGS, BYTES))
    if msgs > MOST_OF_INT:
        yield NotExported(_about(document), MSGS, f"pulsar-admin takes at most {MOST_OF_INT}")
        if BYTES not in limits:
            return
        msgs = -1
    rates = f"--msg-publish-rate={msgs} --byte-publish-rate={size}"
    yield f"admin {command} {rates} {operand(name)}"


def _about(document: Document) -> str:
    return f"{document['scope']} {document['name']}"


def _others(document: Document, group: str, name: str) -> Iterator[Line]:
    """Resource group, backlog quotas and time to live of a namespace or topic."""
    limits, quoted = document["limits"], operand(name)
    if limits.get("resource_group"):
        of = option("--resource-group-name", limits["resource_group"])
        yield f"admin {group} set-resource-group {of} {quoted}"
    for kind, quota in (limits.get("backlog_quota") or {}).items():
        yield _backlog_quota(document, group, quoted, kind, quota)
    if TTL in limits:
        ttl = "--messageTTL" if group == "namespaces" else "--ttl"
        yield f"admin {group} set-message-ttl {ttl}={number(limits[TTL])} {quoted}"


def _backlog_quota(
    document: Document, group: str, quoted: str, kind: str, quota: Mapping[str, Any]
) -> Line:
    key, option = LIMITS[kind]
    if "policy" not in quota or key not in quota:
        why = f"has no {key if 'policy' in quota else 'policy'}, which Pulsar requires"
        return NotExported(_about(document), f"backlog_quota.{kind}", why)
    return (
        f"admin {group} set-backlog-quota --type {kind} {option}={number(quota[key])}"
        f" --policy {quota['policy']} {quoted}"
    )
