"""The columns of a printed answer."""

from __future__ import annotations

import io

import pytest

from app.terminal.rows import ShownColumns, write_table

NAMES = [f"c{n}" for n in range(12)]
ROW = [None if n == 1 else n for n in range(12)]


@pytest.mark.parametrize(
    ("first", "shown", "left"),
    [
        (None, [n for n in NAMES if n != "c1"], None),
        ((), [n for n in NAMES[:9] if n != "c1"], ["c9", "c10", "c11"]),
        (("c3", "c11", "c1"), ["c3", "c11"], [n for n in NAMES if n not in ("c1", "c3", "c11")]),
        (tuple(NAMES), [n for n in NAMES[:9] if n != "c1"], ["c9", "c10", "c11"]),
    ],
)
def test_of_a_question_the_columns_that_decide_are_printed(
    first: tuple[str, ...] | None, shown: list[str], left: list[str] | None
) -> None:
    out = io.StringIO()
    write_table(NAMES, [ROW], out, columns=ShownColumns(first=first))
    heading, _, row, *rest = out.getvalue().splitlines()
    assert heading.split() == shown
    assert row.split() == [name[1:] for name in shown]
    said = "without a value: c1" if left is None else f"--wide shows {', '.join(left)}"
    assert rest == [said]


def test_an_answer_without_rows_names_no_columns_that_are_left() -> None:
    out = io.StringIO()
    write_table(NAMES, [], out, columns=ShownColumns(first=()))
    assert out.getvalue().splitlines()[2:] == ["no rows"]
