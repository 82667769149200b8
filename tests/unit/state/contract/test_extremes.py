"""Values at the ends of 64 bits, and columns that are null, are judged as any other."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from app.contract.parsing.layout import bit
from app.contract.rules import AMOUNTS, CHUNK, CLOCKS, IDS
from state.events import KINDS, MONO, SCHEMA, WALL
from tests.unit.state.contract.contract_traces import SEEDS, checked
from tests.unit.state.contract.jobs import JOBS, Job, Rows, assert_same

LARGEST = 2**63 - 1
REQUIRED = {
    kind.name: {*kind.required, "event_type", "source_feed", "cluster", "broker"} for kind in KINDS
}
POSITIONS = {"mark_delete", "read_pos"}
"""A cursor has one of them at least."""


def columns(job: Job, of_type: pa.DataType | None = None) -> list[str]:
    """The columns that a job reads, of a type; not the two clocks."""
    return [
        name
        for name in job.columns
        if name in SCHEMA.names
        and name not in (MONO, WALL)
        and of_type in (None, SCHEMA.field(name).type)
    ]


def extremes(column: str) -> tuple[int, ...]:
    """The least and the largest value of a column that the contract lets through, and one that a
    double cannot hold; of amounts, whose sums have 64 bits, half of the largest."""
    word, here = bit(column)
    amount = bool(AMOUNTS[word] & here)
    least = 0 if amount or (CLOCKS[word] | IDS[word]) & here else -(2**63) + 1
    least = -1 if column == "producer_id" else least
    return least, 2**53 + 1, LARGEST // 2 if amount else LARGEST


def rounded(rows: Rows) -> Rows:
    """Quotients to twelve digits: the core divides doubles, the reference integers of any size."""
    return {
        table: [
            {k: float(f"{v:.12g}") if isinstance(v, float) else v for k, v in row.items()}
            for row in found
        ]
        for table, found in rows.items()
    }


LONGS = [
    pytest.param(job, column, id=f"{job.name}-{column}")
    for job in JOBS.values()
    for column in columns(job, pa.int64())
]


@pytest.mark.parametrize(("each", "column"), LONGS)
def test_the_ends_of_64_bits(each: Job, column: str) -> None:
    """One record has one of them; core and reference agree."""

    @checked(12, column)
    @given(next(iter(each.traces.values())), SEEDS)
    def check(trace: Any, seed: int) -> None:
        order = random.Random(seed)
        sample = each.sample(trace)
        records = list(sample.records)
        having = [i for i, r in enumerate(records) if r.get(column) is not None]
        if not having:
            return
        at = order.choice(having)
        records[at] = {**records[at], column: order.choice(extremes(column))}
        by = replace(sample, records=records)
        assert_same(rounded(each.play([records], by)), rounded(each.in_order(each.judge(by))))

    check()


def test_null_columns(job: Job, kind: str) -> None:
    """What a kind may lack is lacking in some records; core and reference agree."""
    word, _ = bit("uuid")
    nullable = [
        name
        for name in columns(job)
        if not (bit(name)[0] == word and bit(name)[1] & CHUNK[word]) and name not in POSITIONS
    ]

    @checked(60, kind)
    @given(job.traces[kind], SEEDS)
    def check(trace: Any, seed: int) -> None:
        order = random.Random(seed)
        sample = job.sample(trace)
        names, records = order.sample(nullable, 3), []
        for r in sample.records:
            lost = {n for n in names if order.random() < 0.3} - REQUIRED[r["event_type"]]
            records.append({**r, **dict.fromkeys(lost)})
        by = replace(sample, records=records)
        assert_same(job.play([records], by), job.in_order(job.judge(by)))

    check()
