"""The section of the configuration on a polled Pulsar cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from app.config.base import Milliseconds, Model, Positive, resolved, shown, without_users
from app.errors import UserError

WHERE = "source.admin"
"""The place of these settings in the configuration; messages name keys below it."""
DAY_MS = 86_400_000
Scope = Literal["namespace", "topic", "resource_group", "broker"]
_URL = re.compile(r"https?://[^/?#@\s]+/?")
_NAMESPACE = re.compile(r"[^/\s]+/[^/\s]+")


class PulsarAdminSettings(Model):
    """A Pulsar cluster, what of it is polled, how often, and where the polls are kept."""

    cluster: str = ""
    broker: Annotated[str, Field(min_length=1)] | None = None
    url: list[str] = []
    token: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    namespaces: list[str] = []
    topics: list[str] = []
    policies: list[Scope] = ["namespace", "topic", "resource_group", "broker"]
    publish_times: bool = True
    interval_ms: Positive = 60_000
    timeout_ms: Positive = 10_000
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    threads: Annotated[int, Field(ge=1, le=64)] = 4
    spool: Annotated[str, Field(min_length=1)] | None = None
    keep_ms: Milliseconds = 7 * DAY_MS

    @field_validator("url", mode="before")
    @classmethod
    def _one_or_many(cls, url: Any) -> Any:
        return [url] if isinstance(url, str) else url

    @field_validator("url")
    @classmethod
    def _urls(cls, urls: list[str]) -> list[str]:
        for url in urls:
            if not _URL.fullmatch(url):
                raise ValueError(f"{url!r} is not http://host:port or https://host:port")
        return [url.rstrip("/") for url in urls]

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
        if self.token is not None and self.token_file is not None:
            raise ValueError("token: excludes token_file; give one of them")
        if self.url and not self.namespaces and not self.topics:
            raise ValueError("namespaces: is empty, and so is topics; give one of them")
        return self

    def secret(self) -> str | None:
        """The current token: a file is read at every call, so that it can be renewed."""
        if self.token is not None:
            return resolved({"token": self.token}, WHERE)["token"].strip()
        if self.token_file is None:
            return None
        try:
            return Path(self.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"{WHERE}.token_file: {self.token_file} cannot be read ({error})\n"
                "allowed: a file with the token and nothing else"
            ) from None

    def display(self) -> dict[str, Any]:
        """These settings for printing, secrets masked."""
        plain = self.model_dump()
        if self.token is not None:
            plain.update(shown({"token": self.token}))
        found: dict[str, Any] = without_users(plain)
        return found

    def __repr_args__(self) -> Any:
        return list(self.display().items())
