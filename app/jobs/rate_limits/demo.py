"""What the demo compares on the archived trace: the same traffic with the throttle command."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from app.config.settings import Settings
from app.read.relations import Warehouse, connect
from app.show.report.phrases import duration, number_of
from app.whatif.replay import replayed
from state.rate_limits.declaration import NAME
from state.rate_limits.parameters import RateLimitsParameters

TABLE, COLUMNS = "topic_throttle_stats", ("topic", "collateral_ns")
_STATS = f"SELECT {', '.join(COLUMNS)} FROM {TABLE}"


def compared(settings: Settings) -> str | None:
    """A sentence on pauses that the throttle command would have avoided; None without any."""
    with connect(Warehouse.of(settings.location), _STATS) as connection:
        found = connection.execute(_STATS).fetchall()
    paused = [dict(zip(COLUMNS, row, strict=True)) for row in found]
    return other_protocol(paused, _with_exchange(settings))


def _with_exchange(settings: Settings) -> list[dict[str, Any]]:
    """topic_throttle_stats of the archived trace if every client supported the throttle command."""
    exchange = {"protocol": "pip385", "receipt_model": "all"}
    section = settings.section(RateLimitsParameters).model_copy(update=exchange)
    tables = replayed(settings.model_copy(update={NAME: section}), [NAME])
    if TABLE not in tables:
        return []
    rows: list[dict[str, Any]] = tables[TABLE].select(list(COLUMNS)).to_pylist()
    return rows


def other_protocol(
    stats: Iterable[Mapping[str, Any]], with_exchange: Iterable[Mapping[str, Any]]
) -> str | None:
    """The pauses for the limits of others that the throttle command would have avoided,
    from rows of topic_throttle_stats without and with it; None without any."""
    lost: dict[str, int] = defaultdict(int)
    for row in stats:
        lost[row["topic"]] += row["collateral_ns"] or 0
    victims = [topic for topic, ns in lost.items() if ns]
    if not victims:
        return None
    after = sum(row["collateral_ns"] or 0 for row in with_exchange)
    return (
        f"With the throttle command of PIP-385, if every client supported it, the "
        f"{number_of(len(victims), 'topic')} paused for the limits of other topics would have "
        f"been paused for {duration(after)} instead of {duration(sum(lost.values()))}, summed "
        "over topics."
    )
