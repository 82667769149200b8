"""Which query runs which jobs, after the configuration has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.engine import assignment
from app.errors import UserError
from app.tables import checkpoints, manifest
from state.jobs import BY_DEFAULT
from tests.support.assignment import come_to

MakeSettings = Callable[..., Settings]
ALL = [list(BY_DEFAULT)]
FOUR = ("rate_limits", "chunks", "producer_ids", "backlog")
WITH_ARCHIVE = (*BY_DEFAULT, "archive")


def started(make: MakeSettings, queries: list[list[str]]) -> dict[str, tuple[str, ...]]:
    """Start with these queries: every one that runs has done a batch afterwards."""
    settings = make(queries=queries)
    manifest.claim(settings.location, 2, settings.shards)
    made = assignment.plan(settings)
    assignment.apply(settings.location, made)
    for name in made.queries:
        if "archive" in made.queries[name]:
            checkpoints.application_id(settings.location, "archive")
        if not checkpoints.begun(settings.location, name):
            come_to(settings, name)
    return made.queries


def test_the_first_start_follows_the_configuration(make_settings: MakeSettings) -> None:
    queries = [["rate_limits"], ["chunks", "backlog"]]

    assert started(make_settings, queries) == {
        "rate_limits": ("rate_limits", "archive"),
        "govern-chunks-backlog": ("chunks", "backlog"),
    }
    assert started(make_settings, queries) == {
        "rate_limits": ("rate_limits", "archive"),
        "govern-chunks-backlog": ("chunks", "backlog"),
    }


def test_a_query_of_all_default_jobs_is_named_after_the_others(make_settings: MakeSettings) -> None:
    assert list(started(make_settings, [[*ALL[0], "client_quotas"]])) == ["govern-client_quotas"]


def test_a_new_job_begins_in_a_query_of_its_own(make_settings: MakeSettings) -> None:
    started(make_settings, [list(FOUR)])

    assert started(make_settings, ALL) == {
        "govern-rate_limits-chunks-producer_ids-backlog": (*FOUR, "archive"),
        "entry_cache": ("entry_cache",),
    }


def test_a_job_that_is_left_out_waits_and_goes_on_where_it_was(make_settings: MakeSettings) -> None:
    started(make_settings, ALL)

    assert started(make_settings, [list(FOUR)]) == {"govern": (*FOUR, "archive")}

    settings = make_settings()
    folder, copied = (
        Path(checkpoints.location(settings.location, n)) for n in ("govern", "entry_cache")
    )
    assert sorted(file.name for file in (copied / "commits").iterdir()) == ["0", "1", "2", "3"]
    ids = {
        checkpoints.application_id(settings.location, name) for name in ("govern", "entry_cache")
    }
    assert len(ids) == 2
    assert (copied / "metadata").read_text() != (folder / "metadata").read_text()
    assert started(make_settings, ALL) == {
        "govern": (*FOUR, "archive"),
        "entry_cache": ("entry_cache",),
    }


def test_groups_that_are_taken_apart_go_on_from_the_same_batch(make_settings: MakeSettings) -> None:
    started(make_settings, ALL)

    assert started(make_settings, [["chunks"], [job for job in BY_DEFAULT if job != "chunks"]]) == {
        "govern": (*(job for job in BY_DEFAULT if job != "chunks"), "archive"),
        "chunks": ("chunks",),
    }


def test_the_archive_goes_with_the_group_that_names_it(make_settings: MakeSettings) -> None:
    started(make_settings, ALL)

    rest = [job for job in BY_DEFAULT if job != "chunks"]
    assert started(make_settings, [["chunks", "archive"], rest]) == {
        "govern": tuple(rest),
        "chunks": ("chunks", "archive"),
    }
    assert checkpoints.carrier(make_settings().location, "archive") == "chunks"


def test_queries_that_were_apart_stay_apart(make_settings: MakeSettings) -> None:
    apart = started(make_settings, [["chunks"], ["backlog"]])

    assert started(make_settings, [["chunks", "backlog"]]) == apart


def test_the_order_of_groups_and_jobs_changes_nothing(make_settings: MakeSettings) -> None:
    started(make_settings, [["chunks", "backlog"], ["rate_limits"]])

    assert started(make_settings, [["rate_limits"], ["backlog", "chunks"]]) == {
        "rate_limits": ("rate_limits",),
        "govern-chunks-backlog": ("backlog", "chunks", "archive"),
    }


def test_a_part_of_a_query_cannot_be_run_by_name(make_settings: MakeSettings) -> None:
    started(make_settings, ALL)

    with pytest.raises(UserError) as refused:
        assignment.plan(make_settings(), ["chunks"])
    assert str(refused.value).splitlines() == [
        "--jobs chunks: the query govern runs rate_limits, chunks, producer_ids, backlog, "
        "entry_cache, archive together",
        "name all of them, or split the query: give them groups of their own in queries",
    ]
    assert assignment.plan(make_settings(), list(WITH_ARCHIVE)).queries == {"govern": WITH_ARCHIVE}
    for part in (["archive"], list(BY_DEFAULT)):
        with pytest.raises(UserError, match="archive together\nname all of them"):
            assignment.plan(make_settings(), part)


def test_jobs_are_not_taken_apart_in_the_middle_of_a_batch(make_settings: MakeSettings) -> None:
    settings = make_settings()
    manifest.claim(settings.location, 2, settings.shards)
    assignment.apply(settings.location, assignment.plan(settings, list(BY_DEFAULT)))
    come_to(settings, "govern", planned=4, ended=3)
    changed = make_settings(queries=[list(FOUR)])

    with pytest.raises(UserError) as refused:
        assignment.apply(changed.location, assignment.plan(changed))

    assert str(refused.value).splitlines() == [
        "queries: the last batch of govern has not ended, so it cannot be split yet",
        f"run once with one group of {', '.join(BY_DEFAULT)} and --available-now, then change queries",
    ]


def test_a_start_that_did_no_batch_binds_nobody(make_settings: MakeSettings) -> None:
    settings = make_settings()
    manifest.claim(settings.location, 2, settings.shards)
    assignment.apply(settings.location, assignment.plan(settings))

    assert list(assignment.plan(make_settings(queries=[["chunks"]])).queries) == ["chunks"]


@pytest.mark.parametrize(
    ("only", "queries"),
    [
        (None, {"govern": WITH_ARCHIVE}),
        (["chunks", "archive"], {"chunks": ("chunks", "archive")}),
        (["chunks"], {"chunks": ("chunks",)}),
        (["archive"], {"archive": ("archive",)}),
    ],
)
def test_a_new_warehouse_reads_once_for_all_that_run(
    make_settings: MakeSettings, only: list[str] | None, queries: dict[str, tuple[str, ...]]
) -> None:
    made = assignment.plan(make_settings(), only)
    assert made.queries == queries
    assert made.jobs == [job for jobs in queries.values() for job in jobs if job != "archive"]
    assert set(made.touched) == {*queries, *(["archive"] if "archive" in str(queries) else [])}


def test_an_archive_that_was_left_out_begins_in_a_query_of_its_own(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings()
    manifest.claim(settings.location, 2, settings.shards)
    assignment.apply(settings.location, assignment.plan(settings, list(BY_DEFAULT)))
    come_to(settings, "govern")
    assert assignment.plan(settings).queries == {"govern": BY_DEFAULT, "archive": ("archive",)}


def logged(settings: Settings, query: str) -> dict[str, str]:
    """The files of Spark's logs of a query."""
    folder = Path(checkpoints.location(settings.location, query))
    files = [path for log in checkpoints.LOGS for path in (folder / log).rglob("*")]
    return {str(f.relative_to(folder)): f.read_text() for f in files if f.is_file()}


def test_an_archive_that_is_parted_has_the_progress_of_the_query_that_carried_it(
    make_settings: MakeSettings,
) -> None:
    started(make_settings, ALL)
    settings = make_settings(queries=[["archive"], list(BY_DEFAULT)])
    folder = Path(checkpoints.location(settings.location, "govern"))
    (folder / "sources" / "0").mkdir(parents=True)
    (folder / "sources" / "0" / "0").write_text("v1\n{}")
    application, of_jobs = (
        checkpoints.application_id(settings.location, name) for name in ("archive", "govern")
    )
    assert checkpoints.last_ended(settings.location, "archive") == 3

    assert started(make_settings, settings.queries) == {
        "govern": BY_DEFAULT,
        "archive": ("archive",),
    }

    assert logged(settings, "archive") == logged(settings, "govern")
    assert not Path(checkpoints.location(settings.location, "archive"), "state").exists()
    assert checkpoints.application_id(settings.location, "archive") == application
    assert checkpoints.application_id(settings.location, "govern") == of_jobs
    ids = [
        Path(checkpoints.location(settings.location, name), "metadata").read_text()
        for name in ("archive", "govern")
    ]
    assert ids[0] != ids[1]
    come_to_more = folder / "commits" / "4"
    come_to_more.write_text("v1\n")
    assert checkpoints.last_ended(settings.location, "archive") == 3
    assert started(make_settings, ALL) == {"govern": BY_DEFAULT, "archive": ("archive",)}


def test_an_archive_whose_jobs_are_left_out_goes_on_alone(make_settings: MakeSettings) -> None:
    started(make_settings, [["chunks"]])

    assert started(make_settings, [["backlog"]]) == {
        "backlog": ("backlog",),
        "archive": ("archive",),
    }
    assert assignment.known(make_settings().location)["chunks"] == ("chunks",)
    assert started(make_settings, [["chunks"]]) == {"chunks": ("chunks",), "archive": ("archive",)}


def test_copies_of_logs_that_were_interrupted_count_for_nothing(
    make_settings: MakeSettings,
) -> None:
    started(make_settings, ALL)
    settings = make_settings()
    checkpoints.copy_logs(settings.location, "govern")
    folder = Path(checkpoints.location(settings.location, "govern"))
    for log in ("offsets", "commits"):
        (folder / log / "4").write_text("v1\n")
        (folder / log / "0").unlink()
    assert checkpoints.last_ended(settings.location, "archive") == 4
    checkpoints.copy_logs(settings.location, "govern")
    assert logged(settings, "archive") == logged(settings, "govern")
