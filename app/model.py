"""What every part of the configuration is made of: its base, its units, options and secrets.

Text such as `${env:NAME}` in options stays as it is written; `resolved` puts the value in where a
connection is opened, so that no secret is ever printed, hashed or logged.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from app.errors import UserError

SECRET = re.compile(
    r"password|secret|jaas|token|credential|access_?key|account_?key|sas_?key|private|keystore\.key",
    re.IGNORECASE,
)
ENV = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
MASK = "********"

Milliseconds = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class Model(BaseModel):
    """Base of every part of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def shown(options: dict[str, str]) -> dict[str, str]:
    """Options as they may be printed: a secret written out in the file is masked."""
    return {k: MASK if SECRET.search(k) and not ENV.search(v) else v for k, v in options.items()}


def resolved(options: dict[str, str], where: str) -> dict[str, str]:
    """Options with every `${env:NAME}` replaced; a variable that is not set is a UserError."""

    def value(key: str, match: re.Match[str]) -> str:
        name = match[1]
        if name not in os.environ:
            raise UserError(f"{where}.{key}: the environment variable {name} is not set")
        return os.environ[name]

    return {k: ENV.sub(lambda m, k=k: value(k, m), v) for k, v in options.items()}  # type: ignore[misc]


def as_text(value: Any) -> Any:
    """Options are text for their readers; numbers and switches may be written as such."""
    if not isinstance(value, dict):
        return value
    plain = (str, int, float)
    return {
        k: str(v).lower() if isinstance(v, bool) else str(v) if isinstance(v, plain) else v
        for k, v in value.items()
    }
