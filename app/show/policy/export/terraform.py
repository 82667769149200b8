"""Limits as resources of Terraform: `kafka_quota` of Mongey/kafka, `pulsar_namespace` of
streamnative/pulsar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.show.policy.export.exported import (
    ClientQuota,
    Document,
    Exported,
    NotExported,
    flat,
    kafka_entities,
    number,
    without,
)
from app.terminal.program import PROGRAM
from state.engine.globs import name_of_text

HEAD = f"# Written by {PROGRAM} policy export.\n"
TTL = "message_ttl_in_seconds"
QUOTA = "backlog_quota."
NO_RESOURCE = {
    "topic": "pulsar_topic requires a number of partitions",
    "resource_group": "the provider has no resource groups",
    "broker": "the provider has no settings of brokers",
}
"""Why limits of a scope have no resource."""


def terraform(documents: Sequence[Document]) -> Exported:
    """A resource for each entity of Kafka and each namespace of Pulsar."""
    names: set[str] = set()
    scopes = (*NO_RESOURCE, "namespace")
    quotas, left_out = kafka_entities([d for d in documents if d["scope"] not in scopes])
    blocks = []
    for quota in quotas:
        if quota.user is not None and quota.client_id is not None:
            why = "kafka_quota has a user or a client id, not both"
            left_out += [NotExported(quota.about, key, why) for key in quota.limits]
        else:
            blocks.append(_kafka_quota(quota, names))
    for document in documents:
        if document["scope"] in NO_RESOURCE:
            left_out += without(document, NO_RESOURCE[document["scope"]])
        elif document["scope"] == "namespace":
            kept, missing = _kept(document)
            left_out += missing
            if kept:
                blocks.append(_pulsar_namespace(document["name"], kept, names))
    return Exported(HEAD + "".join(blocks) if blocks else "", left_out)


def _kafka_quota(quota: ClientQuota, names: set[str]) -> str:
    of_user = quota.user is not None
    name = str(quota.user if of_user else quota.client_id)
    label = _label(f"{'user' if of_user else 'client'}_{name}", names)
    named = name_of_text(name)
    entity = [] if named is None else [f"  entity_name = {_text(named)}"]
    config = (f"    {key} = {limit}" for key, limit in quota.limits.items())
    return _block(
        f'resource "kafka_quota" "{label}"',
        f'  entity_type = "{"user" if of_user else "client-id"}"',
        *entity,
        "  config = {",
        *config,
        "  }",
    )


def _kept(document: Document) -> tuple[dict[str, Any], list[NotExported]]:
    """The limits of a namespace that its resource has, and the others."""
    limits = flat(document)
    kept = {
        key: limit
        for key, limit in limits.items()
        if key == TTL or (key.startswith(QUOTA) and "policy" in limit)
    }
    quotas = [key for key in limits if key.startswith(QUOTA)]
    others = without(document, "pulsar_namespace has no such limit", TTL, *quotas)
    bare = without(document, "has no policy, which pulsar_namespace requires", *kept)
    return kept, [*others, *(one for one in bare if one.limit in quotas)]


def _pulsar_namespace(name: str, limits: Mapping[str, Any], names: set[str]) -> str:
    """The resource, and the import of the namespace, which exists."""
    tenant, _, namespace = name.partition("/")
    label = _label(f"namespace_{name}", names)
    lines = [f"  tenant    = {_text(tenant)}", f"  namespace = {_text(namespace)}"]
    for key, limit in limits.items():
        lines += list(_nested(key, limit))
    to = _block("import", f"  to = pulsar_namespace.{label}", f"  id = {_text(name)}")
    return to + _block(f'resource "pulsar_namespace" "{label}"', *lines)


def _nested(key: str, limit: Any) -> Iterator[str]:
    if key == TTL:
        yield from ("  namespace_config {", f"    message_ttl_seconds = {number(limit)}", "  }")
        return
    yield "  backlog_quota {"
    yield f"    type          = {_text(key.removeprefix(QUOTA))}"
    yield f"    policy        = {_text(limit['policy'])}"
    yield f'    limit_bytes   = "{number(limit.get("limitSize", -1))}"'
    yield f'    limit_seconds = "{number(limit.get("limitTime", -1))}"'
    yield "  }"


def _block(head: str, *lines: str) -> str:
    return "\n".join(["", f"{head} {{", *lines, "}", ""])


def _label(text: str, names: set[str]) -> str:
    """A name of Terraform that no other resource has."""
    label = plain = re.sub(r"[^A-Za-z0-9_]", "_", text)
    count = 1
    while label in names:
        count += 1
        label = f"{plain}_{count}"
    names.add(label)
    return label


def _text(text: str) -> str:
    """A quoted text of HCL, in which nothing is a template."""
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text.replace("${", "$${").replace("%{", "%%{")}"'
