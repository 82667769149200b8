"""Planted mistakes: the contract finds each one, by its code, and nothing else."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from app.contract.event_contract import parse
from benchmarks.generator.malformed import TEMPLATES
from benchmarks.generator.trace import ArrivalSlice, Trace
from state.jobs import JOBS
from tests.support.cache import EVENTS, SCENARIOS
from tests.support.planned import slices as slices_of

STATEFUL = ("DUPLICATE_RECORD", "TOO_LATE")


@pytest.mark.parametrize("jobs", [JOBS, ("rate_limits",)])
def test_contract_finds_the_planted_mistakes_and_no_other(
    small: Trace, slices: list[ArrivalSlice], jobs: tuple[str, ...]
) -> None:
    found: Counter[str] = Counter()
    for part in slices:
        parsed = parse(pa.array(part.lines(), pa.binary()), jobs)
        bad = parsed.bad.to_pylist()
        found.update(row["reason_code"] for row in bad)
        assert [row["row"] for row in bad] == part.malformed.nonzero()[0].tolist(), [
            (row, part.lines()[row["row"]]) for row in bad if not part.malformed[row["row"]]
        ]
    planted = sum((part.planted for part in slices), Counter())
    for code in STATEFUL:
        del planted[code]
    assert found == planted


@pytest.mark.parametrize(
    ("scenario", "seeds", "events"),
    [
        ("demo", (1, 7), 60_000),
        ("backlog", (2, 7), 26_000),
        ("demo", (1, 7), 26_000),
        ("large-messages", (1, 2, 3, 7), 20_000),
        *((scenario, (7,), EVENTS) for scenario in SCENARIOS),
    ],
)
def test_contract_finds_the_planted_mistakes_of_every_part(
    scenario: str, seeds: tuple[int, ...], events: int
) -> None:
    for seed in seeds:
        for part in slices_of(scenario, seed, events):
            bad = parse(pa.array(part.lines(), pa.binary()), JOBS).bad
            assert bad["row"].to_pylist() == part.malformed.nonzero()[0].tolist(), seed


def test_every_code_that_a_record_alone_can_earn_is_planted(slices: list[ArrivalSlice]) -> None:
    codes = tuple(dict.fromkeys(template.code for template in TEMPLATES))
    planted = sum((part.planted for part in slices), Counter())
    assert set(planted) == {*codes, *STATEFUL}
    assert codes == (
        "UNPARSEABLE",
        "BAD_TYPE",
        "UNKNOWN_EVENT_TYPE",
        "MISSING_REQUIRED",
        "MISSING_CLOCK",
        "CLOCK_OUT_OF_RANGE",
        "NEGATIVE_AMOUNT",
        "BAD_POSITION",
        "BAD_PRODUCER_ID",
        "BAD_TOPIC",
        "BAD_SUB_TYPE",
        "CHUNK_FIELDS_INCOMPLETE",
        "CHUNK_ID_OUT_OF_RANGE",
        "CHUNK_IN_BATCH",
        "CHUNK_NON_PERSISTENT",
        "BAD_POLICY",
    )


def test_mistakes_are_a_small_share_and_spread_over_the_trace(
    small: Trace, slices: list[ArrivalSlice]
) -> None:
    by_slice = [int(part.malformed.sum()) for part in slices]
    total = sum(by_slice)
    assert total == round(small.events * small.scenario.disorder.malformed)
    assert max(by_slice) < total / 4
