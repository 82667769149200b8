"""The rows with the reasons why records failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from app.contract.parsing.block import Block
from app.contract.parsing.layout import bit, names_of
from app.contract.rules import (
    AMOUNTS,
    BAD_DOCUMENT,
    BAD_POLICY,
    BAD_POSITION,
    BAD_TYPE,
    CHUNK,
    CHUNK_FIELDS_INCOMPLETE,
    CLOCK_OUT_OF_RANGE,
    CLOCKS,
    CODES,
    COLUMN_OF_RULE,
    IDS,
    MISSING_CLOCK,
    MISSING_REQUIRED,
    NEGATIVE_AMOUNT,
    UNPARSEABLE,
)
from state.events import KIND_INDEX, WALL
from state.jobs import DECLARED, JOBS

Array = np.ndarray

SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("reason_code", pa.string()),
        ("detail", pa.string()),
        ("job", pa.string()),
    ]
)


@dataclass(frozen=True)
class BrokenRules:
    """What the rules found in a block, by row unless noted."""

    failed: Array
    """Bit r: rule r failed (int32)."""
    missing: Array
    """Required columns that are null or empty."""
    no_clock: Array
    """Enabled jobs whose clock is null."""
    kinds: Array
    wrong: dict[str, Array]
    """By position column, which of its codes hold no position (the last one is for null)."""
    wrong_markers: Array
    """Rows whose `marker_ids` are not all positions of entries."""
    policy_problems: list[str | None]
    """By code of `policy_json`; includes documents of which only unknown keys are refused."""


def bad_rows(block: Block, found: BrokenRules) -> pa.Table:
    """One row per failed rule, by record, then in the order of the rules and jobs."""
    rows: list[Array] = []
    codes: list[str] = []
    details: list[str | None] = []
    jobs: list[str | None] = []
    for rule, code in enumerate(CODES):
        failing = np.flatnonzero(found.failed >> rule & 1)
        for mine, texts, job in _reasons(rule, failing, block, found):
            rows.append(mine)
            codes += [code] * len(mine)
            details += texts
            jobs += [job] * len(mine)
    if not rows:
        return SCHEMA.empty_table()
    row = np.concatenate(rows)
    table = pa.table([row, codes, details, pa.array(jobs, pa.string())], schema=SCHEMA)
    return table.take(pa.array(np.argsort(row, kind="stable")))


Reasons = tuple[Array, list[str | None], str | None]
"""Rows, their details, and the job that they hold for."""


def _reasons(rule: int, rows: Array, block: Block, found: BrokenRules) -> list[Reasons]:
    if not len(rows):
        return []
    if rule == MISSING_CLOCK:
        return [_clocks_of(job, rows, found) for job in JOBS]
    if rule in _COLUMNS:
        return [(rows, _names(_COLUMNS[rule](rows, block, found)), None)]
    if rule == UNPARSEABLE:
        return [(rows, [block.unparseable[row] for row in rows.tolist()], None)]
    if rule == BAD_POLICY:
        codes = block.text("policy_json")[0][rows]
        return [(rows, [found.policy_problems[code] for code in codes], None)]
    if rule == BAD_DOCUMENT:
        codes, texts = block.text("problem")
        return [(rows, texts.take(pa.array(codes[rows], mask=codes[rows] < 0)).to_pylist(), None)]
    return [(rows, [COLUMN_OF_RULE[rule]] * len(rows), None)]


def _clocks_of(job: str, rows: Array, found: BrokenRules) -> Reasons:
    """Records that a job cannot apply, and the clock that it would need."""
    mine = rows[(found.no_clock[rows] >> JOBS.index(job) & 1).astype(np.bool_)]
    clocks = np.where(found.kinds[mine] == KIND_INDEX["policy"], WALL, DECLARED[job].clock)
    return mine, clocks.tolist(), job


def _names(masks: Array) -> list[str | None]:
    distinct, codes = np.unique(masks, return_inverse=True)
    names = [names_of(int(mask)) for mask in distinct]
    return [names[code] for code in codes]


def _positions(rows: Array, block: Block, found: BrokenRules) -> Array:
    masks: Array = block.negative[rows] & np.uint64(IDS)
    for name, wrong in found.wrong.items():
        masks |= wrong[block.text(name)[0][rows]] * np.uint64(bit(name))
    masks |= np.isin(rows, found.wrong_markers) * np.uint64(bit("marker_ids"))
    return masks


_COLUMNS: dict[int, Callable[[Array, Block, BrokenRules], Array]] = {
    BAD_TYPE: lambda rows, block, _: block.bad_type[rows],
    MISSING_REQUIRED: lambda rows, _, found: found.missing[rows],
    CLOCK_OUT_OF_RANGE: lambda rows, block, _: block.negative[rows] & np.uint64(CLOCKS),
    NEGATIVE_AMOUNT: lambda rows, block, _: block.negative[rows] & np.uint64(AMOUNTS),
    BAD_POSITION: _positions,
    CHUNK_FIELDS_INCOMPLETE: lambda rows, block, _: (
        np.uint64(CHUNK) & ~block.present[rows] & ~block.bad_type[rows]
    ),
}
"""Rules whose detail is the columns that failed, as bit sets."""
