"""The section of the configuration on a polled Pulsar cluster."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from app.config.base import Polled
from app.config.pulsar_access import PulsarWeb

WHERE = "source.admin"
"""The place of these settings in the configuration; messages name keys below it."""
Scope = Literal["namespace", "topic", "resource_group", "broker"]
_NAMESPACE = re.compile(r"[^/\s]+/[^/\s]+")


class PulsarAdminSettings(PulsarWeb, Polled):
    """A Pulsar cluster: what is polled, how often, and where the polls are stored."""

    where: ClassVar[str] = WHERE

    cluster: str = ""
    broker: Annotated[str, Field(min_length=1)] | None = None
    namespaces: list[str] = []
    topics: list[str] = []
    policies: list[Scope] = ["namespace", "topic", "resource_group", "broker"]
    publish_times: bool = True

    @field_validator("namespaces")
    @classmethod
    def _full_namespaces(cls, names: list[str]) -> list[str]:
        for name in names:
            if not _NAMESPACE.fullmatch(name):
                raise ValueError(f"{name!r} is not tenant/namespace")
        return names

    @field_validator("topics")
    @classmethod
    def _full_topics(cls, names: list[str]) -> list[str]:
        # Not at the top: it loads the compiler, for which read commands would wait.
        from udfs.topics import PERSISTENT, normal_topic, split_topic

        for name in names:
            parts = split_topic(name)
            if parts is None:
                raise ValueError(f"{name!r} is not [persistent://]tenant/namespace/name")
            if parts.scheme != PERSISTENT:
                raise ValueError(f"{name!r} has no ledgers (allowed: persistent topics)")
        return [normal_topic(name, None) for name in names]

    @model_validator(mode="after")
    def _complete(self) -> PulsarAdminSettings:
        if not self.cluster:
            raise ValueError("cluster: is missing (the cluster's name, as Pulsar itself has it)")
        if self.url and not self.namespaces and not self.topics:
            raise ValueError("namespaces: is empty, and so is topics; give one of them")
        return self
