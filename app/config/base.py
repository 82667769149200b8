"""Common parts of the sections of the configuration: base class, units, options and secrets.

Text such as `${env:NAME}` in options stays as written; `resolved` replaces it where a connection
is opened, so that no secret is ever printed, hashed or logged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, model_validator

from app.address import parsed
from app.errors import UserError
from app.terminal.moments import duration_ms, has_unit
from app.terminal.secrets import ENV, SECRET, masked, without_secrets
from state.engine import parameters

UNIT_OF_KEY = {
    1: re.compile(r"(_ms|\.ms|Ms|Millis|MillisMax)$"),
    1000: re.compile(r"((?<!_per)_s|[._]seconds|Seconds)$"),
}
"""Milliseconds in a unit, by the ending of the key's name."""
DAY_MS = 86_400_000
Text = Annotated[str, Field(min_length=1)]
Milliseconds = parameters.Milliseconds
Positive = parameters.Positive


def _time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{name!r} is not a time zone (for example Europe/Berlin)") from None
    return name


TimeZone = Annotated[str, AfterValidator(_time_zone)]


class Model(parameters.Section):
    """Base of every part of the configuration."""

    @model_validator(mode="before")
    @classmethod
    def _durations(cls, document: Any) -> Any:
        """Keys of milliseconds and seconds may be written as durations, such as 10s or 5m."""
        if not isinstance(document, dict):
            return document
        return {key: in_unit(key, value) for key, value in document.items()}

    def __repr_args__(self) -> Any:
        return [(name, without_secrets(value)) for name, value in super().__repr_args__()]


class Polled(Model):
    """A cluster that is polled, and where the polls are stored."""

    cluster: Text = "kafka"
    interval_ms: Positive = 60_000
    timeout_ms: Positive = 10_000
    """Longest time for one answer."""
    spool: Text | None = None
    keep_ms: Milliseconds = 7 * DAY_MS


def in_units(section: Any) -> Any:
    """A mapping, and every mapping in it, with durations as numbers of the units of their keys."""
    if isinstance(section, list):
        return [in_units(each) for each in section]
    if not isinstance(section, dict):
        return section
    return {key: in_units(in_unit(key, value)) for key, value in section.items()}


def in_unit(key: Any, value: Any) -> Any:
    """A duration as the number of its key's unit; anything else is returned unchanged, and so is
    one that is not a whole number."""
    if not isinstance(key, str) or not isinstance(value, str) or not has_unit(value):
        return value
    unit_ms = next((ms for ms, ends in UNIT_OF_KEY.items() if ends.search(key)), None)
    try:
        found = duration_ms(value)
    except ValueError:
        return value
    return value if unit_ms is None or found % unit_ms else found // unit_ms


def shown(options: dict[str, str]) -> dict[str, str]:
    """Options as they may be printed: a secret written out in the file is masked."""
    return {k: masked(v) if SECRET.search(k) else without_secrets(v) for k, v in options.items()}


def variable_address(url: str) -> str:
    """An HTTP address that may have variables, as it is; a ValueError for what cannot become one."""
    if not ENV.fullmatch(url):
        try:
            parsed(ENV.sub("1", url), may_log_in=True)
        except ValueError:
            raise ValueError(
                "is not an address (allowed: http://host:port/path, https://…)"
            ) from None
    return url


def resolved(options: Mapping[str, str], where: str) -> dict[str, str]:
    """Options with every `${env:NAME}` replaced; a variable that is not set is a UserError."""

    def value(key: str, match: re.Match[str]) -> str:
        name = match[1]
        if name not in os.environ:
            raise UserError(f"{where}.{key}: the environment variable {name} is not set")
        return os.environ[name]

    return {k: ENV.sub(lambda m, k=k: value(k, m), v) for k, v in options.items()}  # type: ignore[misc]


def as_text(value: Any) -> Any:
    """Options are text for their readers; numbers and booleans may be written as such."""
    if not isinstance(value, dict):
        return value
    plain = (str, int, float)
    return {
        k: str(v).lower() if isinstance(v, bool) else str(v) if isinstance(v, plain) else v
        for k, v in value.items()
    }
