"""The section of the configuration on the comparison with the brokers' own numbers."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import field_validator

from app.config.base import Milliseconds, Positive
from app.config.pulsar_access import PulsarAccess, PulsarWeb, plain_url

WHERE = "reconcile"
_BROKER = re.compile(r"[^\s/:]+:\d{1,5}|\[[^\s/\]]+\]:\d{1,5}")
_PART = re.compile(r"[^\s/:]+(/[^\s/:]+){0,2}")


class _Broker(PulsarWeb):
    where: ClassVar[str] = WHERE


class ReconcileSettings(PulsarAccess):
    """The brokers whose metrics are read, how often, and the filter of the feed."""

    where: ClassVar[str] = WHERE

    brokers: dict[str, str] = {}
    """Addresses by the broker's name in the records; none where groups of Kafka are polled."""
    interval_ms: Positive | None = 60_000
    settle_ms: Milliseconds = 60_000
    wait_ms: Milliseconds = 600_000
    stats_period_ms: Positive = 60_000
    include: list[str] = []
    exclude: list[str] = []
    sampled_by: Literal["none", "topic", "connection"] = "none"

    @field_validator("brokers", mode="before")
    @classmethod
    def _listed(cls, brokers: Any) -> Any:
        """Brokers from a list of addresses; the address gives the name."""
        if not isinstance(brokers, list):
            return brokers
        hosts = [str(url).partition("://")[2].rpartition("@")[2] for url in brokers]
        return {host.rstrip("/"): url for host, url in zip(hosts, brokers, strict=True)}

    @field_validator("brokers")
    @classmethod
    def _named(cls, brokers: dict[str, str]) -> dict[str, str]:
        for name in brokers:
            if not _BROKER.fullmatch(name):
                raise ValueError(
                    f"{name!r} is not the name of a broker (allowed: host:port, as in its records)"
                )
        return {name: plain_url(url) for name, url in brokers.items()}

    @field_validator("include", "exclude")
    @classmethod
    def _places(cls, names: list[str]) -> list[str]:
        for name in names:
            if not _PART.fullmatch(name):
                raise ValueError(
                    f"{name!r} is not allowed (allowed: tenant, tenant/namespace, "
                    "tenant/namespace/name)"
                )
        return names

    def web(self, broker: str) -> PulsarWeb:
        """Access to one broker."""
        keys = {name: getattr(self, name) for name in PulsarAccess.model_fields}
        return _Broker(url=[self.brokers[broker]], threads=1, **keys)

    def takes(self, topic: str) -> bool:
        """Whether the feed has records of a topic, given by its full name."""
        _, _, name = topic.partition("://")
        tenant, _, rest = name.partition("/")
        namespace, _, local = rest.partition("/")
        if tenant == "pulsar" or local.startswith("__"):
            return False
        places = _places_of(tenant, namespace, local)
        return (not self.include or any(p in places for p in self.include)) and not any(
            p in places for p in self.exclude
        )


def _places_of(tenant: str, namespace: str, local: str) -> set[str]:
    """Names that select a topic: its tenant, its namespace, itself with and without its partition."""
    whole = re.sub(r"-partition-\d+$", "", local)
    return {
        tenant,
        f"{tenant}/{namespace}",
        f"{tenant}/{namespace}/{local}",
        f"{tenant}/{namespace}/{whole}",
    }
