"""Owners: the first rule that matches a cluster, tenant, namespace, topic or principal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator

from app.config.base import Model
from app.config.reading import describe, read_yaml

Text = Annotated[str, Field(min_length=1)]
PLACES = ("cluster", "tenant", "namespace", "topic", "principal")
"""Properties that a rule may match by patterns."""
_TOPIC = re.compile(r"(?:[a-z-]+://)?([^/]+)/(.+)/([^/]+)")


class Owner(Model):
    """Patterns (* for any characters, ? for one), and the owner of everything that matches all of
    them.
    """

    cluster: Text | None = None
    tenant: Text | None = None
    namespace: Text | None = None
    topic: Text | None = None
    principal: Text | None = None
    team: Text
    contact: Text | None = None
    cost_centre: Text | None = None

    @field_validator(*PLACES)
    @classmethod
    def _plain(cls, pattern: str | None) -> str | None:
        if pattern is not None and re.search(r"[\[\]]", pattern):
            raise ValueError(f"{pattern!r} has brackets (allowed in a pattern: text, * and ?)")
        return pattern

    @field_validator("namespace")
    @classmethod
    def _in_a_tenant(cls, namespace: str | None) -> str | None:
        if namespace is not None and "/" not in namespace:
            raise ValueError(f"{namespace!r} is not tenant/namespace")
        return namespace

    @model_validator(mode="after")
    def _of_something(self) -> Owner:
        if all(getattr(self, place) is None for place in PLACES):
            raise ValueError(f"names nothing (allowed: {', '.join(PLACES)})")
        return self

    def named(self) -> dict[str, str]:
        """Team, contact and cost centre, as far as they are given."""
        found = {name: getattr(self, name) for name in ("team", "contact", "cost_centre")}
        return {name: value for name, value in found.items() if value is not None}

    def fits(self, **names: str | None) -> bool:
        """Whether every pattern matches; a missing name matches none."""
        wanted = ((getattr(self, place), names.get(place)) for place in PLACES)
        return all(
            pattern is None or (name is not None and _pattern(pattern).fullmatch(name) is not None)
            for pattern, name in wanted
        )


def owner_of(
    owners: Iterable[Owner],
    cluster: str | None = None,
    topic: str | None = None,
    principal: str | None = None,
) -> Owner | None:
    """The owner of a topic or principal: by the first rule that fits."""
    names = {"cluster": cluster, "principal": short_principal(principal), **_parts(topic)}
    return next((owner for owner in owners if owner.fits(**names)), None)


def short_principal(principal: str | None) -> str | None:
    """A principal without its type, as tables have users: the part after the first colon."""
    return None if principal is None else principal.partition(":")[2] or principal


def _parts(topic: str | None) -> dict[str, str | None]:
    """Tenant, namespace and topic, without scheme and partition; a Kafka topic has only its name."""
    if topic is None:
        return {}
    name = re.sub(r"-partition-\d+$", "", topic)
    found = _TOPIC.fullmatch(name)
    if found is None:
        return {"topic": name}
    tenant, rest, local = found.groups()
    return {"tenant": tenant, "namespace": f"{tenant}/{rest}", "topic": f"{tenant}/{rest}/{local}"}


@lru_cache(maxsize=4096)
def _pattern(pattern: str) -> re.Pattern[str]:
    parts = ({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in pattern)
    return re.compile("".join(parts), re.DOTALL)


def owner_documents(document: dict[str, Any], folder: Path) -> tuple[list[Any], list[str]]:
    """The rules of the configuration and of its files (paths relative to `folder`), in order, and
    the mistakes in the files.
    """
    inline, files = document.get("owners"), document.get("owner_files")
    found: list[Any] = list(inline) if isinstance(inline, list) else []
    mistakes: list[str] = []
    for name in files if isinstance(files, list) else ():
        if not isinstance(name, str):
            continue
        path = folder / name
        for number, rule in enumerate(read_yaml(path, list)):
            try:
                Owner.model_validate(rule)
            except ValidationError as error:
                mistakes += [
                    f"{path}: [{number}]{'' if text.startswith(':') else '.'}{text}"
                    for text in describe(error, Owner)
                ]
            else:
                found.append(rule)
    return found, mistakes
