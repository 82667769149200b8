"""The producer of a chunked message, from its uuid."""

from __future__ import annotations

import re
from typing import Any

_HALF = 2**63
_DIGITS = re.compile("[0-9]{1,19}")


def sender_of(uuid: str) -> dict[str, Any] | None:
    """Producer name and sequence id in the uuid of a chunk, `name-sequence`; None without a
    sequence id. A name may contain a minus.
    """
    name, separator, number = uuid.rpartition("-")
    if not separator or not _DIGITS.fullmatch(number) or int(number) >= _HALF:
        return None
    return {"producer_name": name, "sequence_id": int(number)}
