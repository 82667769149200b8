"""The section of the configuration on alerts: rules, interval and notification sinks."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from app.config.alert_rule import Rule
from app.config.base import Model, Positive, as_text, resolved, shown, variable_address
from app.terminal.secrets import ENV, MASK, masked, without_secrets

_MAY_CARRY_SECRET = re.compile(r"(https?://[^/?#]+)[/?#](.+)")


class _HttpSink(Model):
    """The keys of every HTTP sink."""

    url: str
    headers: dict[str, str] = {}
    timeout_ms: Positive = 5_000
    retries: Annotated[int, Field(ge=0, le=10)] = 3

    _text = field_validator("headers", mode="before")(as_text)

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        return variable_address(url)

    @property
    def identity(self) -> str:
        """The key of its progress: derived from the address as written."""
        return hashlib.sha256(f"{self.type} {self.url}".encode()).hexdigest()[:16]  # type: ignore[attr-defined]

    @property
    def title(self) -> str:
        """The sink in messages: its type and host, without secrets."""
        return f"{self.type} {_host_only(self.url)}"  # type: ignore[attr-defined]

    def address(self) -> str:
        """The address, with secrets from the environment."""
        return resolved({"url": self.url}, "alerts.sinks")["url"]

    def all_headers(self) -> dict[str, str]:
        """The headers, with secrets from the environment."""
        return resolved(self.headers, "alerts.sinks.headers")

    def display(self) -> dict[str, Any]:
        """These settings for printing, secrets masked."""
        secret = re.compile("authorization|key|token|secret|cookie", re.IGNORECASE)
        headers = {
            k: masked(v) if secret.search(k) and MASK not in v else v
            for k, v in shown(self.headers).items()
        }
        return {**self.model_dump(), "url": _host_only(self.url), "headers": headers}

    def __repr_args__(self) -> Any:
        return list(self.display().items())


class StdoutSink(Model):
    """Lines on standard output, as text or as JSON."""

    type: Literal["stdout"]
    format: Literal["text", "json"] = "text"


class WebhookSink(_HttpSink):
    """A POST of JSON for alerts that began to fire or were resolved."""

    type: Literal["webhook"]


class AlertmanagerSink(_HttpSink):
    """Alertmanager's API v2: firing alerts are sent repeatedly, resolved ones once, and beside them an
    alert that fires for as long as rules are evaluated."""

    type: Literal["alertmanager"]
    resend_ms: Positive = 60_000
    expire_ms: Positive = 3_600_000
    watchdog_ms: Positive | None = 300_000
    labels: dict[str, str] = {}

    _label_text = field_validator("labels", mode="before")(as_text)


HttpSink = WebhookSink | AlertmanagerSink
Sink = Annotated[StdoutSink | WebhookSink | AlertmanagerSink, Field(discriminator="type")]


class AlertSettings(Model):
    """Rules, interval and notification sinks."""

    interval_ms: Positive | None = 30_000
    lookback_ms: Positive = 7_200_000
    query_timeout_ms: Positive = 30_000
    rules: list[Rule] = []
    rule_files: list[str] | None = None
    runbook_base: str | None = None
    sinks: list[Sink] = []

    @property
    def http_sinks(self) -> list[HttpSink]:
        """The sinks with delivery: all but standard output."""
        return [sink for sink in self.sinks if not isinstance(sink, StdoutSink)]

    def runbook_at(self, runbook: str | None) -> str | None:
        """A runbook as sinks are told of it: an address where there is a base and it is a path."""
        is_path = runbook and "://" not in runbook
        return (
            f"{self.runbook_base.rstrip('/')}/{runbook}"
            if self.runbook_base and is_path
            else runbook
        )

    def display(self) -> dict[str, Any]:
        """These settings for printing, secrets masked."""
        sinks = [s.model_dump() if isinstance(s, StdoutSink) else s.display() for s in self.sinks]
        return {**self.model_dump(), "sinks": sinks}


def _host_only(url: str) -> str:
    """An address without its possibly secret parts: user, password, path and query, in which chat
    services have tokens. Variables stay.
    """
    if ENV.fullmatch(url):
        return url
    match = _MAY_CARRY_SECRET.fullmatch(without_secrets(url))
    if match is None:
        return str(without_secrets(url))
    return f"{match[1]}/{masked(match[2])}"
