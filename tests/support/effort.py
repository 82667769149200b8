"""How much of its large properties and soaks a run of the tests does.

`./test.sh` does a share of the random traces and leaves out what is marked `slow`; `--slow` does all
of it, `--quick` the smallest share, of tests/unit alone. Their traces are the same in every run;
`--nightly` does all of it on traces of a seed of its own.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

SLOW = bool(os.environ.get("WEIR_SLOW"))
QUICK = bool(os.environ.get("WEIR_QUICK"))
FRESH = bool(os.environ.get("WEIR_FRESH"))
"""Traces of the seed that pytest was given, those that failed before first."""
SHRINK = "WEIR_SHRINK" in os.environ
LOOKED_FOR = 4
"""A share of the traces in which what a test looks for happens."""
SHARE, LEAST = (40, 3) if QUICK else (10, 6)


def examples(whole: int, share: int = SHARE) -> int:
    """How many of `whole` random examples are drawn: one of `share`, but not too few."""
    return whole if SLOW else min(whole, max(whole // share, LEAST))


def drawn(whole: int, share: int = SHARE) -> settings:
    """How random traces are drawn: the same ones in every run unless FRESH, a share of `whole`.

    Shrinking a trace takes minutes: only when asked for, with WEIR_SHRINK.
    """
    return settings(
        max_examples=examples(whole, share),
        deadline=None,
        derandomize=not FRESH,
        database=DirectoryBasedExampleDatabase(".hypothesis/examples") if FRESH else None,
        phases=[
            Phase.explicit,
            *([Phase.reuse] if FRESH else []),
            Phase.generate,
            *([Phase.shrink] if SHRINK else []),
        ],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
