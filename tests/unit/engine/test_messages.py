"""Rows between packer, operator and committer: what is no records of a job is passed on."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from app.engine.messages import MessageKind, control_row
from app.engine.step import stepper

CONTROL = [kind for kind in MessageKind if kind is not MessageKind.DATA]


class NoState:
    """The state of a group that has none and gets none."""

    hasTimedOut = exists = False


def passed_on(*frames: pd.DataFrame) -> list[dict[str, Any]]:
    answers = stepper({})(("", 0), iter(frames), NoState())
    return [row for frame in answers for row in frame.to_dict("records")]


@pytest.mark.parametrize("kind", CONTROL)
def test_the_group_without_a_name_passes_control_rows_on_and_keeps_no_state(
    kind: MessageKind,
) -> None:
    row = control_row(kind, b"x")
    assert row.select(["job", "shard", "ts"]).to_pylist() == [{"job": "", "shard": 0, "ts": None}]
    assert passed_on(row.to_pandas()) == [{"table_name": "", "kind": kind, "blob": b"x"}]


def test_kinds_of_one_group_stay_apart_and_a_clock_without_times_ends_there() -> None:
    rows = pd.concat([control_row(kind, kind.name.encode()).to_pandas() for kind in CONTROL])
    clock = control_row(MessageKind.CLOCK, b"").to_pandas()
    assert passed_on(clock, rows) == [
        {"table_name": "", "kind": kind, "blob": kind.name.encode()} for kind in CONTROL
    ]
    assert passed_on(clock) == []
