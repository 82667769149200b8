"""Every test of the contract is one test per job."""

from __future__ import annotations

import pytest

from tests.unit.state.contract.jobs import JOBS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`job` is each job that the test's property can hold for; `kind` is one of its kinds of
    random traces, too."""
    names = {metafunc.module.__name__.rpartition(".")[2], metafunc.function.__name__}
    jobs = [job for job in JOBS.values() if not names & job.exempt.keys()]
    if "kind" in metafunc.fixturenames:
        pairs = [(job, kind) for job in jobs for kind in job.traces]
        metafunc.parametrize(("job", "kind"), pairs, ids=lambda x: getattr(x, "name", x))
    elif "job" in metafunc.fixturenames:
        metafunc.parametrize("job", jobs, ids=[job.name for job in jobs])
