"""What a format makes of policy documents: a text, and the limits that it cannot express."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from state.engine.documents import name_of
from state.engine.globs import SCOPES as PATTERNS
from state.policies import CLIENT_ID, CLIENT_QUOTAS

Document = Mapping[str, Any]
WHOLE = ("producer_byte_rate", "consumer_byte_rate")
"""Limits that Kafka takes as whole numbers only."""
MOST_OF_INT = 2**31 - 1
UTF_8 = "export LC_ALL=C.UTF-8  # by which Java reads names\n"


class NotExported(NamedTuple):
    """A limit that a format cannot express."""

    document: str
    limit: str
    why: str

    def __str__(self) -> str:
        return f"not exported: {self.document}: {self.limit}: {self.why}"


class Exported(NamedTuple):
    """The text of a format."""

    text: str
    """Empty if the format can express no limit."""
    left_out: list[NotExported]


class ClientQuota(NamedTuple):
    """The limits of a user, a client id or both in Kafka; `<default>` for a default."""

    user: str | None
    client_id: str | None
    limits: dict[str, int | float]


def flat(document: Document) -> dict[str, Any]:
    """The limits of a document by key, those of backlog quotas by type."""
    limits = dict(document["limits"])
    quotas = limits.pop("backlog_quota", None) or {}
    return {**limits, **{f"backlog_quota.{kind}": quota for kind, quota in quotas.items()}}


def without(document: Document, why: str, *kept: str) -> Iterator[NotExported]:
    """The limits of a document but those that are kept, for one reason."""
    about = f"{document['scope'].removesuffix('s')} {name_of(document)}"
    return (NotExported(about, key, why) for key in flat(document) if key not in kept)


def why_no_name(document: Document) -> str | None:
    """Why a document is about no single name of a broker, or about one that a script cannot pass, or
    None."""
    if document["scope"] == "tenants":
        return "no tool has limits of a tenant; name its namespaces"
    if document["scope"] in PATTERNS:
        return "is a pattern; name what it is to match"
    named = (document["name"], document.get(CLIENT_ID), document["limits"].get("resource_group"))
    odd = next((sign for text in named for sign in text or "" if not sign.isprintable()), None)
    # NUL ends a word, and others drive the terminal that shows the script.
    return None if odd is None else f"the name has U+{ord(odd):04X}, which no script passes"


def option(name: str, value: str) -> str:
    """An option of a command with its value, which may begin as an option does."""
    return f"{name}={shlex.quote(value)}"


def operand(value: str) -> str:
    """A word of a command that is no option, whatever it begins with."""
    return f"-- {shlex.quote(value)}" if value.startswith("-") else shlex.quote(value)


def kafka_entities(documents: Sequence[Document]) -> tuple[list[ClientQuota], list[NotExported]]:
    """The limits of Kafka's users and clients, one element for each entity, since Kafka refuses a
    request that alters one twice; and the limits that are none."""
    quotas: list[ClientQuota] = []
    left_out: list[NotExported] = []
    for document in documents:
        why = why_no_name(document)
        if why is not None or document["scope"] not in ("user", "client"):
            left_out += without(document, why or "is no quota of Kafka's clients")
            continue
        left_out += without(document, "Kafka has no such quota", *CLIENT_QUOTAS)
        if not document["limits"]:
            about = f"{document['scope']} {name_of(document)}"
            left_out.append(NotExported(about, "no limits", "what is exported removes none"))
        every = {k: number(v) for k, v in document["limits"].items() if k in CLIENT_QUOTAS}
        whole = {k: v for k, v in every.items() if k not in WHOLE or isinstance(v, int)}
        others = (key for key in flat(document) if key in whole or key not in every)
        left_out += without(document, "Kafka takes whole bytes", *others)
        of_user, name = document["scope"] == "user", document["name"]
        user, client_id = (name, document.get(CLIENT_ID)) if of_user else (None, name)
        if whole:
            quotas.append(ClientQuota(user, client_id, whole))
    return quotas, left_out


def script(head: str, commands: Sequence[str]) -> str:
    """A shell script; empty without a command."""
    text = "".join(f"{command}\n" for command in commands)
    return f"{head}{'' if text.isascii() else UTF_8}{text}" if text else ""


def number(value: float) -> int | float:
    """A limit as it is written: a whole number as such."""
    return int(value) if value == int(value) else value
