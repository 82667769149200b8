"""The list of seeded faults stays current; `python -m tests.faults` runs it."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from state.jobs import JOBS
from tests.faults import ROOT, Fault, load

FAULTS = load()


def test_faults_are_numbered_and_four_are_in_each_core() -> None:
    assert [fault.number for fault in FAULTS] == list(range(1, 63))
    cores = Counter(fault.file.split("/")[1] for fault in FAULTS[:24])
    assert cores == dict.fromkeys(JOBS, 4)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.number))
def test_a_fault_occurs_once_and_has_tests_of_the_quick_tier(fault: Fault) -> None:
    assert fault.is_current, f"{fault.text!r} is not once in {fault.file}"
    assert fault.text != fault.replacement
    assert fault.tests
    for test in fault.tests:
        path, *names = test.split("::")
        assert path.startswith("tests/unit/")
        source = (ROOT / path).read_text("utf-8")
        for name in names:
            assert re.search(rf"^def {name.partition('[')[0]}\(", source, re.MULTILINE), test
