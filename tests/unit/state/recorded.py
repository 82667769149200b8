"""The vectors of the specification and the cases recorded from released classes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).resolve().parents[2] / "data" / "vectors"


def vectors(file: str, target: str, skipped: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    """Vectors of one target, less those that are left out by name."""
    suite = json.loads((VECTORS / file).read_text())
    return [v for v in suite["vectors"] if v["target"] == target and v["id"] not in skipped]


def cases(file: str) -> list[dict[str, Any]]:
    """Recorded cases of one file, as many as it says it has."""
    with gzip.open(VECTORS / file, "rt") as lines:
        about, *found = [json.loads(line) for line in lines]
    if len(found) != about["cases"]:
        raise ValueError(f"{file} has {len(found)} cases, its first line says {about['cases']}")
    return found
