"""`--cluster` of the commands that read: rows of that cluster alone, and names that are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.cli import main
from app.config.settings import Settings
from app.show.reconcile.comparing import ComparisonRound
from tests.support.ready_questions import compared, polled, put
from tests.support.throttle_rows import window, write_windows
from tests.unit.show.forecast.rounds import growing

Make = Callable[..., Settings]
OVER = {"culprit_times": 9, "limited_times": 9, "culprit_ns": 10**9, "messages": 9000}
COMMANDS = (
    ("query", "SELECT DISTINCT cluster FROM topic_throttle_stats", "--json"),
    ("report", "--json"),
    ("forecast", "--json"),
    ("alerts", "check", "--json"),
)


@pytest.fixture
def two_clusters(make_settings: Make, tmp_warehouse: str) -> str:
    make_settings()
    names = ("east", "west")
    write_windows(
        tmp_warehouse, [window(n, cluster=name, **OVER) for name in names for n in (0, 1)]
    )
    put(
        tmp_warehouse,
        {
            "backlog_checks": [{**row, "cluster": name} for name in names for row in growing()],
            "coverage_polls": [polled(name, 0) for name in names],
        },
    )
    return tmp_warehouse


def clusters(answer: Any) -> set[str]:
    """Every cluster that an answer names."""
    if isinstance(answer, dict):
        here = {answer["cluster"]} if "cluster" in answer else set()
        return here.union(*map(clusters, answer.values()))
    return set().union(*map(clusters, answer)) if isinstance(answer, list) else set()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_only_rows_of_the_cluster(
    command: tuple[str, ...], two_clusters: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def named(*words: str) -> set[str]:
        main([*command, "--warehouse", two_clusters, *words])
        return clusters(json.loads(capsys.readouterr().out))

    assert named() >= {"east", "west"}
    assert named("--cluster", "west") == {"west"}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_cluster_without_a_record_is_refused(
    command: tuple[str, ...], two_clusters: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--warehouse", two_clusters, "--cluster", "wset"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"weir: --cluster: {two_clusters} has no records of wset",
        "did you mean west?",
    ]


def test_numbers_that_were_compared() -> None:
    rows = [{**compared(0, "messages"), "cluster": name} for name in ("east", "west")]
    done = ComparisonRound(rows)
    assert done.of_cluster("west").rows == rows[1:]
    assert done.of_cluster(None).rows == rows
