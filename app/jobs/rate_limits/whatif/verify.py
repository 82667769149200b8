"""Verifies suggested limits by running the job over the archive under them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from app.config.levels import compiled
from app.engine.operators import operators
from app.jobs.rate_limits.whatif.history import RATES, Rate
from app.jobs.rate_limits.whatif.owners import Per, TopicOwners
from app.whatif.replay.archive import Archive
from app.whatif.replay.choice import Choice
from app.whatif.replay.event_span import EventSpan
from app.whatif.replay.in_memory import judge_in_memory
from state.engine.globs import NAMESPACES, TOPICS
from state.jobs import DECLARED
from state.rate_limits.declaration import NAME as JOB
from state.rate_limits.limits import unpartitioned

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.jobs.rate_limits.whatif.command import Limited, SuggestedLimits

VERDICTS = "publish_verdicts"
EVERY = frozenset({(TOPICS, "**"), (NAMESPACES, "**")})
"""Policies of topics and namespaces in the archive, which the suggestions replace."""
LATER_MS = 86_400_000
"""Time after the newest record to which the clock is moved at the end (ms)."""
ROUNDING = 1e-9
"""Shares are sums of 64-bit floats, added in another order."""
Amount = tuple[str, str, Rate]
"""Cluster, name, and what is counted."""


def verified(settings: Settings, found: SuggestedLimits, owners: TopicOwners) -> list[str]:
    """Where the job contradicts the suggestions, in words."""
    asked = found.asked

    def shares(limits: Mapping[Limited, int]) -> dict[Amount, float]:
        return (
            throttled(settings, asked.per, found.limited(limits), owners, asked.span)
            if limits
            else {}
        )

    broken = [text for rate in asked.rates for text in _too_large(found, rate, shares)]
    kept = shares(found.limits)
    for one in found.suggestions:
        share = kept.get((one.cluster, one.name, one.rate), 0.0)
        if share > asked.share or abs(share - one.throttled_share) > ROUNDING:
            broken.append(
                f"{one.name} ({one.cluster}): {share:.6f} of its {one.rate} throttled"
                f" under {one.limit}, not {one.throttled_share:.6f}"
            )
    if len(asked.rates) > 1:
        for rate in asked.rates:
            broken += _pair_too_large(found, rate, shares)
    return broken


Shares = Callable[[Mapping["Limited", int]], dict[Amount, float]]


def _too_large(found: SuggestedLimits, rate: Rate, shares: Shares) -> Iterator[str]:
    """Names for which a limit on messages or on bytes alone could be smaller."""
    least: dict[str, int] = {}
    for one in found.suggestions:
        if one.rate == rate:
            least[one.name] = max(least.get(one.name, 0), one.alone)
    smaller = {(name, rate): limit - 1 for name, limit in least.items() if limit > 1}
    found_ = shares(smaller)
    for (name, _), limit in smaller.items():
        most = max((s for (_, n, r), s in found_.items() if (n, r) == (name, rate)), default=0.0)
        if most <= found.asked.share:
            yield f"{name}: {most:.6f} of its {rate} throttled under {limit}, which is smaller"


def _pair_too_large(found: SuggestedLimits, rate: Rate, shares: Shares) -> Iterator[str]:
    """Names of one cluster whose limit on a rate could be smaller beside the other one."""
    clusters = Counter((one.name, one.rate) for one in found.suggestions)
    own = [one for one in found.suggestions if one.of_both and clusters[one.name, one.rate] == 1]
    raised = {one.name for one in own if one.rate == rate and one.needed > one.alone}
    smaller = {
        (one.name, one.rate): one.needed - (one.rate == rate) for one in own if one.name in raised
    }
    most: dict[str, float] = {}
    for (_, name, _), share in shares(smaller).items():
        most[name] = max(most.get(name, 0.0), share)
    for name in sorted(raised):
        if most.get(name, 0.0) <= found.asked.share:
            yield (
                f"{name}: {most.get(name, 0.0):.6f} throttled under {smaller[name, rate]}"
                f" {rate}, which is smaller"
            )


def throttled(
    settings: Settings,
    per: Per,
    documents: Sequence[Mapping[str, Any]],
    owners: TopicOwners,
    span: EventSpan,
) -> dict[Amount, float]:
    """The share of each name's messages, and of its bytes, that the job throttles under some
    documents. They hold from the beginning and are the only ones of topics, namespaces and their
    groups.
    """
    groups = [
        {"scope": "namespace", "name": name, "limits": {"resource_group": group}}
        for name, group in owners.members.items()
    ]
    plain = compiled(documents)
    texts = sorted(json.dumps(d, sort_keys=True) for d in [*plain, *groups])
    params = {**settings.job_params(JOB), "extra_outputs": [VERDICTS]}
    operator = operators(settings, [JOB])[JOB]
    operator = replace(
        operator, job=DECLARED[JOB].core(params, texts, None), tables=(*operator.tables, VERDICTS)
    )
    replaced = EVERY | {(d["scope"], d["name"]) for d in plain}
    archive = Archive(
        settings, {JOB: operator.route}, span, Choice(replaced={key: {} for key in replaced})
    )
    total: Counter[Amount] = Counter()
    beyond: Counter[Amount] = Counter()

    def take(name: str, rows: pa.Table) -> None:
        if name == VERDICTS:
            _count(rows, per, owners, total, beyond)

    def end_ms(latest_ms: int) -> int:
        """The newest records wait for later ones, of which there are none."""
        return max(latest_ms, 0) + LATER_MS + settings.allowed_lateness_ms

    judge_in_memory(archive, {JOB: operator}, settings.idle_advance_ms, take, end_ms)
    return {which: beyond[which] / amount if amount else 0.0 for which, amount in total.items()}


def _count(
    verdicts: pa.Table,
    per: Per,
    owners: TopicOwners,
    total: Counter[Amount],
    beyond: Counter[Amount],
) -> None:
    """Add the charges of some rows. A charge that either bucket does not admit counts as throttled."""
    limiter = "resource_group" if per == "group" else "topic"
    mine = verdicts.filter(pc.equal(verdicts.column("limiter"), limiter))
    passed = pc.and_(mine.column("messages_ok"), mine.column("bytes_ok"))
    columns: dict[str, Any] = {
        "cluster": mine.column("cluster"),
        "topic": mine.column("topic"),
        "passed": passed,
        **{rate: mine.column(rate).cast(pa.float64(), safe=False) for rate in RATES},
    }
    summed = (
        pa.table(columns)
        .group_by(["cluster", "topic", "passed"])
        .aggregate([(rate, "sum") for rate in RATES])
    )
    for row in summed.to_pylist():
        base, namespace = unpartitioned(row["topic"])
        name = {
            "topic": base,
            "namespace": namespace,
            "group": owners.members.get(namespace or ""),
        }[per]
        if name is None:
            continue
        for rate in RATES:
            which = row["cluster"], name, rate
            total[which] += row[f"{rate}_sum"]
            if not row["passed"]:
                beyond[which] += row[f"{rate}_sum"]
