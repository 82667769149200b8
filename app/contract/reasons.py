"""How the reasons of refused records are told: the details of the rows of each rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from app.contract.parsing.layout import names_of
from state.events import KIND_INDEX, WALL
from state.jobs import DECLARED, JOBS

if TYPE_CHECKING:
    from app.contract.parsing.block import Block

Array = np.ndarray


class Failing(NamedTuple):
    """The records of a block that break a rule."""

    block: Block
    rows: Array
    columns: Array
    """The columns at fault (bit sets), by word and record of `rows`."""
    kinds: Array
    """By row of the block, as the next one."""
    missing_clock: Array
    """Enabled jobs whose clock is null."""
    policy_problems: list[str | None]
    """By code of `policy_json`; includes documents of which only unknown keys are refused."""


class Reasons(NamedTuple):
    """Rows, the detail of each, and the job that they hold for."""

    rows: Array
    details: list[str | None]
    job: str | None = None


Detail = Callable[[Failing], Iterator[Reasons]]


def columns_at_fault(failing: Failing) -> Iterator[Reasons]:
    """The names of the columns."""
    distinct, codes = np.unique(failing.columns, axis=1, return_inverse=True)
    names = [names_of(words) for words in distinct.T.tolist()]
    yield Reasons(failing.rows, [names[code] for code in codes])


def decoder_message(failing: Failing) -> Iterator[Reasons]:
    """Why the decoder could make nothing of a line."""
    yield Reasons(failing.rows, [failing.block.unparseable[row] for row in failing.rows.tolist()])


def clocks_by_job(failing: Failing) -> Iterator[Reasons]:
    """Per job, the clock that it would need."""
    for j, job in enumerate(JOBS):
        rows = failing.rows[(failing.missing_clock[failing.rows] >> j & 1).astype(np.bool_)]
        is_policy = failing.kinds[rows] == KIND_INDEX["policy"]
        yield Reasons(rows, np.where(is_policy, WALL, DECLARED[job].clock).tolist(), job)


def policy_problem(failing: Failing) -> Iterator[Reasons]:
    """The mistake in a policy document."""
    codes = failing.block.text("policy_json")[0][failing.rows]
    yield Reasons(failing.rows, [failing.policy_problems[code] for code in codes])


def polled_problem(failing: Failing) -> Iterator[Reasons]:
    """The problem that the poller has recorded."""
    codes, texts = failing.block.text("problem")
    codes = codes[failing.rows]
    yield Reasons(failing.rows, texts.take(pa.array(codes, mask=codes < 0)).to_pylist())
