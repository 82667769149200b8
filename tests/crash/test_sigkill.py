"""Killed between and inside commits, again and again: the rows of an uninterrupted run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.config.settings import load_settings
from app.run.service import run
from tests.crash.service import killed_at
from tests.crash.tables import ALONE, Tables

KILLS = [
    ("archive", "before", 1),  # the tasks have written files that no commit names
    ("govern", "before", 1),
    ("govern", "after", 1),  # one table of the batch is committed, the others are not
    ("archive", "after", 1),
    ("govern", "inside", 4),
    ("archive", "inside", 2),
    ("govern", "after", 6),
]
JOINED_KILLS = [
    ("all", "before", 1),
    ("all", "after", 1),
    ("all", "recorded", 1),  # of the archive; the jobs' is not
    ("all", "merged", 1),  # a merged file that no commit names
    ("all", "together", 2),
    ("all", "to-remove", 1),  # of files and their list, both are there
]
FIRST_KILLS = [("archive", "identity", 1), ("govern", "identity", 1), ("govern", "taken", 1)]
GATHERED_KILLS = [
    ("govern", "together", 1),  # one table has rows of several batches, in files as well
    ("govern", "gathered", 8),
    ("govern", "to-remove", 1),
    ("govern", "due", 2),
    ("govern", "removed", 1),
]


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param([JOINED_KILLS[0], JOINED_KILLS[2], JOINED_KILLS[3]], id="three"),
        pytest.param(JOINED_KILLS, id="joined", marks=pytest.mark.slow),
        pytest.param(KILLS, id="all", marks=pytest.mark.slow),
        pytest.param(FIRST_KILLS, id="first", marks=pytest.mark.slow),
        pytest.param(GATHERED_KILLS, id="gathered", marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_commit_a_run_goes_on_to_the_rows_of_one_that_was_not(
    kills: list[tuple[str, str, int]], make_config: Callable[[str], Path], calm: Tables
) -> None:
    config = make_config("killed-" + "-".join(step for _, step, _ in kills))
    for kill in kills:
        killed_at(config, *kill)
    settings = load_settings(config, ALONE)
    assert run(settings, available_now=True) == 0
    assert not Tables.of(settings.warehouse).differences(calm)
