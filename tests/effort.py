"""How much of its large properties and soaks a run of the tests does.

`./test.sh` does a share of the random traces and leaves out what is marked `slow`;
`./test.sh --slow` does all of it.
"""

from __future__ import annotations

import os

SLOW = bool(os.environ.get("WEIR_SLOW"))
LEAST = 12


def examples(whole: int) -> int:
    """How many of `whole` random examples are drawn."""
    return whole if SLOW else min(whole, max(whole // 4, LEAST))
