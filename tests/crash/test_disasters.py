"""A few of the disasters of `python -m tests.crash`, each with one seed."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.__main__ import picked
from tests.crash.disasters import DISASTERS
from tests.crash.site import Records, Site
from tests.crash.tables import Tables
from tests.support.servers.kafka import Kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 1
BY_NAME = {each.name: each for each in DISASTERS}


@pytest.fixture(scope="module")
def records(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Records:
    """The trace of all disasters of this module."""
    return Records(tmp_path_factory.mktemp("disasters") / "records")


def differences(name: str, records: Records, folder: Path, kafka: Kafka | None = None) -> list[str]:
    """Where the tables differ from those of an uninterrupted run, after a disaster."""
    site = Site(records, folder / "site", SEED, kafka)
    with site.afterwards:
        BY_NAME[name].strike(site)
        return site.differences()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("storm", "kill-worker", "table-deleted", "archive-full"),
        *(name for name in BY_NAME if name.startswith("full-")),
    ],
)
def test_after_a_disaster_or_its_remedy_the_tables_are_those_of_a_calm_run(
    name: str, records: Records, tmp_path: Path
) -> None:
    assert differences(name, records, tmp_path) == []


@pytest.mark.slow
@pytest.mark.kafka
def test_a_topic_that_is_created_again_is_refused_and_read_into_another_warehouse(
    records: Records, tmp_path: Path, kafka: Kafka
) -> None:
    assert differences("topic-recreated-between-runs", records, tmp_path, kafka) == []


def test_a_missing_row_and_one_that_is_there_twice_are_differences() -> None:
    calm = Tables({"events": [("a",), ("b",), ("b",)]}, [("0", 1), ("0", 2)])
    found = Tables({"events": [("b",), ("b",), ("b",)]}, [("0", 1), ("0", 2)])
    assert found.differences(calm) == [
        "events: 1 of 3 rows are missing, 1 are too many; first ('a',)"
    ]
    assert Tables({}, [("0", 2)]).differences(calm) == [
        "events: 3 of 3 rows are missing, 0 are too many; first ('a',)",
        "records: 1 of 2 rows are missing, 0 are too many; first ('0', 1)",
    ]
    assert calm.differences(calm) == []


def test_every_disaster_strikes_once_before_one_strikes_again() -> None:
    count = len(DISASTERS)
    first, second = (list(islice(picked(DISASTERS, 5), n, n + count)) for n in (0, count))
    assert sorted(each.name for each, _ in first) == sorted(BY_NAME)
    assert {seed for _, seed in first} == {5}
    assert {seed for _, seed in second} == {6}
    assert [each.name for each, _ in first] != [each.name for each, _ in second]
    assert list(islice(picked(DISASTERS, 6), count)) == second
