"""The declarations of the jobs, and what of them a process loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.config.settings import Settings
from app.contract.event_contract import DIGESTS
from app.engine.routing import PLACES
from state.engine.declaration import Declaration
from state.engine.table import COMMON_OUTPUT
from state.events import KINDS, SCHEMA
from state.jobs import DECLARED, JOBS, readers
from tests.support.loaded import loaded

ROOT = Path(__file__).parents[3]

EVERY = pytest.mark.parametrize("job", DECLARED.values(), ids=list(DECLARED))


@EVERY
def test_a_job_names_kinds_and_columns_of_the_contract(job: Declaration) -> None:
    assert set(job.kinds) | set(job.everywhere) <= {kind.name for kind in KINDS}
    assert set(job.columns) <= {*SCHEMA.names, *DIGESTS, *PLACES}
    assert {"event_type", "source_feed", "cluster", "broker", "seq", job.clock} <= set(job.columns)
    assert set(job.key) <= {*job.columns, "user"}


@EVERY
def test_a_core_is_made_of_the_defaults_of_its_parameters(job: Declaration) -> None:
    assert job.core(Settings().job_params(job.name)).name == job.name


@EVERY
def test_marked_parameters_are_parameters(job: Declaration) -> None:
    known = set(job.parameters().params()) | {"duplicate_insert"}  # not set by default
    assert job.switches
    assert set(job.switches) <= known


@EVERY
def test_every_parameter_is_read(job: Declaration) -> None:
    """A key that changes nothing is not accepted: naming it in a model or a policy is no use of it."""
    names = set(job.parameters().params()) - {"extra_outputs"}
    declared = ("parameters.py", "policies.py")
    sources = [path for top in ("app", "state") for path in (ROOT / top).rglob("*.py")]
    text = "".join(path.read_text("utf-8") for path in sources if path.name not in declared)
    assert [
        name for name in names if name.removeprefix("managedLedgerCacheEviction") not in text
    ] == []


def test_every_kind_has_a_reader_and_the_readers_their_order() -> None:
    assert readers("entry_added") == ("rate_limits", "chunks", "backlog", "entry_cache")
    # A document that a poll could not use is only refused.
    assert [kind.name for kind in KINDS if not readers(kind.name)] == ["poll", "bad_document"]


def test_a_bit_of_a_byte_is_left_for_each_job() -> None:
    """The rules of the contract keep a bit for each job (`app.contract.rules.KindTable.readers`)."""
    assert len(JOBS) <= 8


@EVERY
def test_a_job_has_a_section_of_the_configuration(job: Declaration) -> None:
    settings = Settings.model_validate({job.name: {}})
    assert settings.job_settings(job.name) == job.parameters()
    assert list(settings.switches(job.name)) == list(job.switches)


@EVERY
def test_the_key_of_a_row_is_of_columns_of_every_table(job: Declaration) -> None:
    assert job.row_key[-1] == "row_no"
    for table in job.tables:
        assert table.columns[: len(COMMON_OUTPUT)] == COMMON_OUTPUT
        assert set(job.row_key) <= set(table.names)


def test_what_a_worker_runs_loads_neither_pydantic_nor_the_configuration() -> None:
    """Cores, routing, step and a source's reader are what a Python worker unpickles; the
    parameters come as a dictionary."""
    cores = [job.core_class.partition(":")[0] for job in DECLARED.values()]
    rooms = [*cores, "state.jobs", "app.engine.step", "app.sources.files.line_files"]
    apart = ("pydantic", "deltalake", "app.config", "app.demo")
    assert loaded(rooms, apart) == []


def test_a_command_that_reads_loads_no_compiler() -> None:
    """It takes a third of a second, as long as the rest of a short question."""
    rooms = ["app.config.settings", "app.jobs", "app.read.query", "app.show.alerts.evaluator"]
    assert loaded(rooms, ("numba", "pandas", "pyspark")) == []
