"""Times as they are written on a command line."""

from __future__ import annotations

from datetime import UTC, datetime

from app.errors import UserError


def moment_ms(text: str, where: str) -> int:
    """Milliseconds since the epoch of a time, UTC unless it says otherwise; `where` begins the
    message about what is none."""
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(
            f"{where}: is not a time\n"
            "allowed: milliseconds since the epoch, or ISO 8601 such as 2026-01-31T14:05:00Z"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
