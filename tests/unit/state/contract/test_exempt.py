"""A job is left out of a property by the name of its test, with the reason."""

from __future__ import annotations

import re
from pathlib import Path

from state.jobs import DECLARED
from tests.unit.state.contract.jobs import JOBS


def test_every_exemption_is_of_a_test_that_exists() -> None:
    files = list(Path(__file__).parent.glob("test_*.py"))
    names = {path.stem for path in files}
    names |= {name for path in files for name in re.findall(r"def (test_\w+)", path.read_text())}
    given = {name: reason for job in JOBS.values() for name, reason in job.exempt.items()}
    assert given.keys() <= names
    assert all(given.values())


def test_every_job_keeps_the_contract() -> None:
    assert list(JOBS) == list(DECLARED)
