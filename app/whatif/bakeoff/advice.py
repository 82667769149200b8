"""The advice of a bake-off: which policy, at which size, and the gain of more memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.terminal.sizes import size_text
from app.whatif.bakeoff.curves import Curve, Point

SHIPPED = "expected_reads"
"""The default policy of brokers."""
BEFORE = "proportional"
"""The policy of older brokers (up to 4.0)."""
OPTIMUM = "belady"
ENOUGH = 0.005
"""Share of the storage reads below which a difference is not reported."""
NEARLY = 0.01
"""Share of all reads below which a larger cache is not advised."""


def advised_size(points: Sequence[Point], configured: int | None) -> int:
    """The size that the advice is about: the configured one if it was replayed, else the smallest
    at which the advised policy answers nearly as much as at any size.
    """
    sizes = sorted({p.max_bytes for p in points if p.max_bytes is not None})
    if configured in sizes:
        return configured
    best, _ = _contestants({p.curve: p for p in points if p.max_bytes == sizes[-1]})
    return _enough(points, best, sizes[-1])


def _enough(points: Sequence[Point], curve: Curve, size: int) -> int:
    """The smallest size at which a policy answers nearly as much as at any size up to a limit."""
    ratios = {
        p.max_bytes: p.hit_ratio
        for p in points
        if p.curve == curve and p.max_bytes is not None and p.max_bytes <= size
    }
    return min(own for own, ratio in ratios.items() if ratio >= max(ratios.values()) - NEARLY)


def sentence(points: Sequence[Point], size: int) -> str:
    """The advice for a size, from the storage reads of its caches and of caches twice as large."""
    by_place = {(p.curve, p.max_bytes): p for p in points}
    at = {curve: p for (curve, own), p in by_place.items() if own == size}
    best, other = _contestants(at)
    parts = [_compared(size, best, other, at)]
    whole = at[other].total["storage_bytes"] if other else at[best].total["storage_bytes"]
    double = by_place.get((best, 2 * size))
    if double is not None and whole:
        more = (at[best].total["storage_bytes"] - double.total["storage_bytes"]) / whole
        saved = _percent(more) if more >= ENOUGH else "nothing"
        parts.append(f"doubling the cache saves {saved} more")
    enough = _enough(points, best, size)
    if enough < size:
        parts.append(f"{size_text(enough)} would answer nearly as much")
    optimum = next((p for curve, p in at.items() if curve.policy == OPTIMUM), None)
    if optimum is not None and whole and best.policy != OPTIMUM:
        left = (at[best].total["storage_bytes"] - optimum.total["storage_bytes"]) / whole
        if left >= ENOUGH:
            parts.append(f"foresight could save another {_percent(left)} at this size")
    return "; ".join(parts) + "."


def _contestants(at: Mapping[Curve, Point]) -> tuple[Curve, Curve | None]:
    """The advised policy and the one to compare it with: the brokers' default and the older default
    if both were replayed, else the policies with the fewest and the most storage reads.
    """
    plain = {curve.policy: curve for curve in at if not curve.own}
    if SHIPPED in plain and BEFORE in plain:
        return plain[SHIPPED], plain[BEFORE]
    ranked = sorted(
        (curve for curve in at if curve.policy != OPTIMUM),
        key=lambda curve: at[curve].total["storage_bytes"],
    ) or list(at)
    return ranked[0], ranked[-1] if len(ranked) > 1 else None


def _compared(size: int, best: Curve, other: Curve | None, at: Mapping[Curve, Point]) -> str:
    where = f"At {size_text(size)} `{best.label}`"
    mine = at[best]
    if other is None:
        return (
            f"{where} answers {_percent(mine.hit_ratio)} of the reads and reads "
            f"{size_text(mine.total['storage_bytes'])} from storage"
        )
    theirs = at[other].total["storage_bytes"]
    if not theirs:
        return f"{where} reads as little from storage as `{other.label}`: nothing"
    saved = 1 - mine.total["storage_bytes"] / theirs
    if abs(saved) < ENOUGH:
        return f"{where} reads as much from storage as `{other.label}`"
    if saved < 0:
        return f"{where} reads {_percent(-saved)} more from storage than `{other.label}`"
    return f"{where} saves {_percent(saved)} of storage reads against `{other.label}`"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
