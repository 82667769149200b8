"""Where the archive of a warehouse ends, and what a warehouse that continues it takes over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from app.archive_names import ARCHIVE
from app.config.location import Location
from app.config.settings import Settings
from app.errors import UserError
from app.tables import checkpoints, manifest, succession
from app.tables.run_lock import only_run
from app.tables.small_files import path_in
from tests.support.old_warehouse import FILES, HISTORY_MS, KAFKA, POLLS, Old, root_of


@pytest.fixture
def new(tmp_path: Path) -> Location:
    location = Location(str(tmp_path / "new"))
    manifest.claim(location, 2, 4)
    return location


def begun(new: Location, old: Old, *queries: str) -> succession.Predecessor:
    succession.check(new, old.location.uri, None, polled=True)
    return succession.begin(new, old.location.uri, queries or ("govern",), HISTORY_MS)


def test_the_end_is_that_of_the_last_batch(new: Location, tmp_path: Path) -> None:
    old = Old(tmp_path / "old")
    old.batches(3)
    kept = begun(new, old)
    version = DeltaTable(path_in(old.location, "events")).version()
    assert kept == succession.Predecessor(
        str(tmp_path / "old"), version, [KAFKA.format(2), POLLS], {"from": 1}
    )
    assert succession.predecessor(new) == kept
    assert manifest.of_any_layout(new).topics == {"fleet": "id-1"}
    succession.check(new, f"{old.location.uri}/", None, polled=True)  # again, after a kill


def test_a_batch_that_has_not_ended_counts_where_the_table_has_it(
    new: Location, tmp_path: Path
) -> None:
    old = Old(tmp_path / "old")
    old.batches(2)
    old.plan(2)
    assert begun(new, old).ends[0] == KAFKA.format(1)
    other = Location(str(tmp_path / "other"))
    manifest.claim(other, 2, 4)
    old.write(2)
    assert begun(other, old).ends[0] == KAFKA.format(2)


@pytest.mark.parametrize("planned", [2, 3])
def test_rows_that_wait_are_committed_first(new: Location, tmp_path: Path, planned: int) -> None:
    """Those of a batch that has not ended are removed: the source has its records."""
    old = Old(tmp_path / "old", waits=True)
    old.batches(2)
    if planned == 3:
        old.plan(2)
        old.write(2)
    with pytest.raises(UserError, match="has no archive, a table events with records"):
        succession.check(new, old.location.uri, None, polled=True)
    kept = succession.begin(new, old.location.uri, ["govern"], HISTORY_MS)
    assert kept.ends[0] == KAFKA.format(1)
    table = DeltaTable(path_in(old.location, "events"))
    assert table.to_pyarrow_table().num_rows == 6
    assert kept.version == table.version()


def test_each_query_gets_the_list_of_files_that_were_read(new: Location, tmp_path: Path) -> None:
    old = Old(tmp_path / "old", FILES)
    old.batches(2)
    old.plan(2)  # found, and not read
    begun(new, old, "govern", "chunks")
    for query in ("govern", "chunks"):
        folder = root_of(new) / checkpoints.FOLDER / query / "sources" / "0"
        assert sorted(file.name for file in folder.iterdir()) == ["0", "1"]
    assert not checkpoints.found(new)


def test_another_run_and_other_ends_are_refused(new: Location, tmp_path: Path) -> None:
    old = Old(tmp_path / "old")
    with pytest.raises(UserError, match="has no archive"):
        succession.check(new, old.location.uri, "kafka", polled=True)
    old.batches(1)
    with only_run(old.location, [ARCHIVE]), pytest.raises(UserError, match="another run works on"):
        succession.check(new, old.location.uri, "kafka", polled=True)
    with pytest.raises(UserError, match=r"source\.format: files cannot go on where another source"):
        succession.check(new, old.location.uri, "files", polled=True)
    succession.check(new, old.location.uri, "kafka_messages", polled=False)
    (root_of(old.location) / checkpoints.FOLDER / "govern" / "offsets" / "0").unlink()
    with pytest.raises(UserError, match=r"says where the archive of .* ends in the source"):
        succession.check(new, old.location.uri, "kafka", polled=True)


def test_a_warehouse_continues_one_and_begins_with_it(new: Location, tmp_path: Path) -> None:
    old, other = Old(tmp_path / "old"), Old(tmp_path / "other")
    for each in (old, other):
        each.batches(1)
    with pytest.raises(UserError, match="has records of its own; an archive fills a new warehouse"):
        succession.check(old.location, other.location.uri, "kafka", polled=True)
    begun(new, old)
    with pytest.raises(UserError, match=r"continues .*old; an archive fills a new warehouse"):
        succession.check(new, other.location.uri, "kafka", polled=True)
    third = Location(str(tmp_path / "third"))
    (root_of(new) / "events").symlink_to(root_of(old.location) / "events")
    with pytest.raises(UserError, match=r"has not read all of .*old, which it continues"):
        succession.check(third, new.uri, "kafka", polled=True)


def test_queries_go_on_at_the_end_of_the_archive_as_if_nothing_had_been_reached(
    new: Location, tmp_path: Path
) -> None:
    old = Old(tmp_path / "old")
    old.batches(3)
    kept = begun(new, old)
    filled = Old(root_of(new), '{{"archived_ms":{0},"more":false}}')
    filled.batches(2)
    assert not succession.is_past(new, "govern")
    assert checkpoints.committed(new, ARCHIVE).settled is not None
    succession.finish(new, ["govern"])
    assert succession.is_past(new, "govern")
    assert checkpoints.ends(new, "govern") == kept.ends
    assert [checkpoints.plan(new, "govern", batch).planned_ms for batch in (0, 1)] == [0, 0]
    assert checkpoints.committed(new, ARCHIVE).settled is None, "the plan is another one"
    identity = checkpoints.identity(new, "govern")
    assert identity is not None and identity.first_offset == {"from": 1}
    found = succession.predecessor(new)
    assert found is not None and found.is_read


def test_an_archive_that_has_lost_its_version_is_named(new: Location, tmp_path: Path) -> None:
    old = Old(tmp_path / "old")
    old.batches(1)
    kept = begun(new, old)
    assert succession.archive_of(new, kept).version() == kept.version
    gone = succession.Predecessor(kept.uri, kept.version + 5, kept.ends)
    with pytest.raises(UserError, match=f"events has no version {kept.version + 5} any more"):
        succession.archive_of(new, gone)


def test_a_relative_name_is_that_of_one_folder(
    make_settings: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = make_settings().location
    assert succession.location(here, "old/").uri == str(tmp_path / "old")
    assert succession.location(here, "s3a://lake/old").uri == "s3a://lake/old"
