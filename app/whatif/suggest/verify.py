"""Whether suggested limits keep what they promise: the job itself over the archive under them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from app.config.levels import compiled
from app.stream.operators import operators
from app.terminal.interrupt import temporary_folder
from app.warehouse.shape import shaped
from app.warehouse.tables import TABLES
from app.whatif.replay.archive import Archive, Span
from app.whatif.replay.choice import Choice
from app.whatif.replay.engine import Engine
from app.whatif.replay.slices import slices
from app.whatif.suggest.history import Rate
from app.whatif.suggest.owners import Owners, Per
from state.engine.globs import NAMESPACES, TOPICS
from state.jobs import DECLARED
from state.rate_limits.declaration import NAME as JOB
from state.rate_limits.limits import unpartitioned

if TYPE_CHECKING:
    from app.config.settings import Settings

VERDICTS = "publish_verdicts"
EVERY = frozenset({(TOPICS, "**"), (NAMESPACES, "**")})
"""The policies of topics and namespaces in the archive, in whose place the suggestions are."""
LATER_MS = 86_400_000
"""So long after the newest record no other is waited for."""
Name = tuple[str, str]
"""Cluster and name."""


def throttled(
    settings: Settings, per: Per, rate: Rate, documents: Sequence[Mapping[str, Any]],
    owners: Owners, span: Span,
) -> dict[Name, float]:
    """The share of each name's messages or bytes that the job throttles under some documents,
    which hold from the begin and are the only ones of topics, namespaces and their groups."""
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
    archive = Archive(settings, {JOB: operator.route}, span, Choice(replaced=replaced))
    found = slices(archive.counted(), archive.span)
    total: Counter[Name] = Counter()
    beyond: Counter[Name] = Counter()
    with temporary_folder("weir-suggest-") as folder:
        engine = Engine(archive, {JOB: operator}, settings.idle_advance_ms)
        for _, tables in engine.run(found, folder):
            if VERDICTS in tables:
                _count(tables[VERDICTS], per, rate, owners, total, beyond)
        # the newest records wait for later ones, of which there are none
        end_ms = max(engine.states.latest_ms, 0) + LATER_MS + settings.allowed_lateness_ms
        for state in engine.states.states.values():
            step = operator.job.step(state, [], end_ms)
            if VERDICTS in step.tables:
                rows = step.tables[VERDICTS]
                _count(shaped(rows, TABLES[VERDICTS], operator.constants), per, rate, owners,
                       total, beyond)
    return {name: beyond[name] / amount if amount else 0.0 for name, amount in total.items()}


def _count(
    verdicts: pa.Table, per: Per, rate: Rate, owners: Owners, total: Counter[Name],
    beyond: Counter[Name],
) -> None:
    """Add the charges of one slice."""
    limiter = "resource_group" if per == "group" else "topic"
    mine = verdicts.filter(pc.equal(verdicts.column("limiter"), limiter))
    mine = mine.set_column(
        mine.schema.get_field_index(rate), rate, mine.column(rate).cast(pa.float64()))
    summed = mine.group_by(["cluster", "topic", f"{rate}_ok"]).aggregate([(rate, "sum")])
    for row in summed.to_pylist():
        base, namespace = unpartitioned(row["topic"])
        name = {"topic": base, "namespace": namespace,
                "group": owners.members.get(namespace or "")}[per]
        if name is None:
            continue
        total[row["cluster"], name] += row[f"{rate}_sum"]
        if not row[f"{rate}_ok"]:
            beyond[row["cluster"], name] += row[f"{rate}_sum"]


