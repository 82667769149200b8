"""The options of the sources over Pulsar topics, and the requirements of each."""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.errors import did_you_mean
from app.plain_text import is_digits

PULSAR_OPTIONS = (
    "serviceUrl",
    "topics",
    "startingOffsets",
    "failOnDataLoss",
    "subscriptionPrefix",
    "operationTimeoutMs",
    "connectionTimeoutMs",
    "token",
    "tlsTrustCertsFilePath",
    "tlsAllowInsecureConnection",
    "tlsHostnameVerificationEnable",
    "tlsCertificateFilePath",
    "tlsKeyFilePath",
    "listenerName",
)
MESSAGES_OPTIONS = (*PULSAR_OPTIONS, "adminUrl")
"""Named as in Pulsar's `client.conf` and client builders, if they have the option."""
SERVICE = re.compile(r"pulsar(\+ssl)?://[^\s/]+/?")
ADMIN = re.compile(r"https?://[^/?#@\s]+/?")
TOPIC = re.compile(r"(?:persistent://)?[^/:\s]+/[^/:\s]+/[^/\s]+")
CHOICES = {
    "startingOffsets": ("earliest", "latest"),
    "failOnDataLoss": ("true", "false"),
    "tlsAllowInsecureConnection": ("true", "false"),
    "tlsHostnameVerificationEnable": ("true", "false"),
}


def topic_names(options: dict[str, str]) -> list[str]:
    """The topics that the options name, in full."""
    named = (name.strip() for name in options.get("topics", "").split(","))
    return [name if "://" in name else f"persistent://{name}" for name in named if name]


def refuse_wrong(options: dict[str, str], allowed: Sequence[str]) -> None:
    """ValueError for an option that is unknown, missing, or has an invalid value."""
    for key in options:
        if key not in allowed:
            raise ValueError(f"options.{key}: unknown option ({did_you_mean(key, allowed)})")
    if "serviceUrl" not in options:
        raise ValueError("options.serviceUrl: is missing (pulsar://host:6650 or pulsar+ssl://...)")
    if "${" not in options["serviceUrl"] and not SERVICE.fullmatch(options["serviceUrl"]):
        raise ValueError(
            "options.serviceUrl: is not an address of brokers (allowed: pulsar://host:6650, "
            "pulsar+ssl://host:6651)"
        )
    admin = options.get("adminUrl", "http://host")
    if "${" not in admin and not ADMIN.fullmatch(admin):
        raise ValueError(
            "options.adminUrl: is not an address of brokers (allowed: http://host:port, "
            "https://host:port)"
        )
    names = topic_names(options)
    if not names:
        raise ValueError("options.topics: is missing (tenant/namespace/name,...)")
    for name in names:
        if "${" not in name and not TOPIC.fullmatch(name):
            raise ValueError(
                f"options.topics: {name} is not a persistent topic "
                "(allowed: [persistent://]tenant/namespace/name)"
            )
        if names.count(name) > 1:
            raise ValueError(f"options.topics: {name} is named more than once")
    for key, choices in CHOICES.items():
        if key in options and options[key] not in choices:
            raise ValueError(
                f"options.{key}: {options[key]!r} is not supported (allowed: {', '.join(choices)})"
            )
    for key in ("operationTimeoutMs", "connectionTimeoutMs"):
        if key in options and not (is_digits(options[key]) and int(options[key])):
            raise ValueError(f"options.{key}: {options[key]!r} is not a number of milliseconds")
    if ("tlsCertificateFilePath" in options) != ("tlsKeyFilePath" in options):
        raise ValueError("options: tlsCertificateFilePath and tlsKeyFilePath belong together")
    if "token" in options and "tlsCertificateFilePath" in options:
        raise ValueError("options: either token, or tlsCertificateFilePath and tlsKeyFilePath")
