"""The section of the configuration on metrics: the address, and the number of series."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, field_validator

from app.config.base import Model, Positive

_ADDRESS = re.compile(r"^(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]+)):(?P<port>\d{1,5})$")


class MetricsSettings(Model):
    """The exporter for Prometheus."""

    listen: str = "127.0.0.1:9464"
    refresh_s: Positive = 15
    idle_s: Positive = 3600
    top: Annotated[int, Field(ge=1, le=10_000)] = 100
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Use / limit from which on a topic, user ... has series, before it breaches its quota."""

    @field_validator("listen")
    @classmethod
    def _is_an_address(cls, listen: str) -> str:
        address(listen)
        return listen


def address(listen: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, an IPv6 host in brackets; a ValueError if it is neither."""
    found = _ADDRESS.match(listen)
    if found is None or int(found["port"]) > 65_535:
        raise ValueError(
            f"{listen!r} is not an address (allowed: HOST:PORT, for example 127.0.0.1:9464 or "
            "[::1]:9464)"
        )
    return found["six"] or found["host"], int(found["port"])
