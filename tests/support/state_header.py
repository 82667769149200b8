"""What a state's bytes say of themselves."""

from __future__ import annotations

import json
import struct
from typing import Any

from state.engine import codec


def described(data: bytes) -> dict[str, Any]:
    """Job, version, size in memory, and the arrays by name and length."""
    end = 8 + struct.unpack_from("<I", data, 4)[0]
    header = json.loads(bytes(data[8:end]))
    arrays = codec.decode(header["job"], header["version"], data)
    return {
        "job": header["job"],
        "version": header["version"],
        "bytes": sum(array.nbytes for array in arrays.values()),
        "arrays": [{"name": name, "length": len(array)} for name, array in arrays.items()],
    }
