"""Access to a Pulsar broker's web service: token, trusted certificates, time-out, retries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from app.address import parsed
from app.config.base import Model, Positive, resolved, shown
from app.config.documents import text_of
from app.errors import UserError
from app.terminal.secrets import without_secrets


def plain_url(url: str) -> str:
    """An address without its final slash; a ValueError if it is invalid."""
    try:
        there = parsed(url)
    except ValueError:
        there = None
    if there is None or there.target not in ("", "/"):
        raise ValueError(f"{without_secrets(url)!r} is not http://host:port or https://host:port")
    return url.rstrip("/")


class PulsarAccess(Model):
    """Keys of every section about a broker's web service."""

    where: ClassVar[str]
    """The section's place in the configuration; messages name keys below it."""

    token: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    timeout_ms: Positive = 10_000
    retries: Annotated[int, Field(ge=0, le=10)] = 2

    @model_validator(mode="after")
    def _one_token(self) -> PulsarAccess:
        if self.token is not None and self.token_file is not None:
            raise ValueError("token: excludes token_file; give one of them")
        return self

    def secret(self) -> str | None:
        """The current token: a file is read at every call, so that it can be renewed."""
        if self.token is not None:
            return resolved({"token": self.token}, self.where)["token"].strip()
        if self.token_file is None:
            return None
        try:
            return text_of(Path(self.token_file)).strip()
        except UserError as error:
            raise UserError(
                f"{self.where}.token_file: {error}\nallowed: a file with the token and nothing else"
            ) from None

    def display(self) -> dict[str, Any]:
        """These settings for printing, secrets masked."""
        plain = self.model_dump()
        if self.token is not None:
            plain.update(shown({"token": self.token}))
        found: dict[str, Any] = without_secrets(plain)
        return found

    def __repr_args__(self) -> Any:
        return list(self.display().items())


class PulsarWeb(PulsarAccess):
    """One cluster's brokers: the next address is tried where one does not answer."""

    url: list[str] = []
    threads: Annotated[int, Field(ge=1, le=64)] = 4

    @field_validator("url", mode="before")
    @classmethod
    def _one_or_many(cls, url: Any) -> Any:
        return [url] if isinstance(url, str) else url

    @field_validator("url")
    @classmethod
    def _urls(cls, urls: list[str]) -> list[str]:
        return [plain_url(url) for url in urls]
