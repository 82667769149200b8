"""The work of a Spark task on a shard: calls the cores of its jobs and returns blobs of their rows.

Spark's workers import this module and what it imports, so it imports no configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from app.engine.messages import Message, MessageKind, encode
from app.engine.operators import Operator
from app.engine.payloads import WHOLE
from app.engine.policy_versions import Follower
from app.engine.ticks import DRAINED, REACHED, number
from app.sources.worker import settle
from app.tables.definitions import TABLES
from app.tables.shape import shaped
from state.engine.job import Step
from state.engine.payloads import PARTS
from state.engine.reach import Reach

if TYPE_CHECKING:
    import pandas as pd

STATE = "state binary"


def stepper(
    group: dict[str, Operator],
) -> Callable[[tuple[str, int], Iterator[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
    """The function of the stateful operator: one call per shard with records or a due timer."""
    jobs = {name: operator.job for name, operator in group.items()}
    follower = Follower(group)

    def step(
        key: tuple[str, int], frames: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        settle()
        if not key[0]:
            for frame in frames:
                passed = [
                    Message(*row)
                    for row in zip(frame["kind"], frame["blob"], strict=True)
                    if row[1]
                ]
                if passed:
                    yield _frame(passed)
            return
        job = jobs.get(key[0])
        if job is None:
            return
        blobs = [] if state.hasTimedOut else [b for f in frames for b in f["blob"] if len(b)]
        follower.follow()
        seen_ms = max(state.getCurrentWatermarkMs(), 0)
        answer = job.step(
            state.get[0] if state.exists else None,
            blobs,
            Reach(number(DRAINED), number(REACHED)),
        )
        state.update((answer.state,))
        if answer.wake_at_ms is not None:
            state.setTimeoutTimestamp(max(answer.wake_at_ms, seen_ms + 1))
        answers = _answers(answer, group[key[0]])
        if answers:
            yield _frame(answers)

    return step


def _answers(answer: Step, operator: Operator) -> list[Message]:
    """The rows of a step; here messages with payloads are written to a file of their table."""
    found = []
    for name, rows in answer.tables.items():
        if operator.payloads is not None and name == WHOLE:
            whole = shaped(operator.stamp.stamped(rows), TABLES[name], operator.constants)
            for part in PARTS:
                whole = whole.append_column(part, rows.column(part))
            operator.payloads.write_whole(whole)
        else:
            found.append(Message(MessageKind.DATA, encode(rows), name))
    if operator.payloads is not None:
        found += [Message(MessageKind.FILE, file) for file in operator.payloads.drain()]
    if answer.needed_idle_advance_ms is not None:
        found.append(Message(MessageKind.LATE, str(answer.needed_idle_advance_ms).encode()))
    return found


def _frame(answers: Sequence[Message]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        {
            "table_name": pd.Series([a.table for a in answers], dtype=object),
            "kind": pd.Series([a.kind for a in answers], dtype="int8"),
            "blob": pd.Series([a.body for a in answers], dtype=object),
        }
    )


def decode(blobs: Sequence[Any]) -> pa.Table:
    """The rows of several blobs of one table."""
    return pa.concat_tables([pa.ipc.open_stream(blob).read_all() for blob in blobs])
