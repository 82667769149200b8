"""What a run says of the warehouse that it continues, and takes over from it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from app.config.settings import Settings
from app.run import continuing
from app.tables import manifest, succession
from app.tables.definitions import TABLES
from app.tables.retained import DONE, REMOVED
from app.tables.shape import shaped
from tests.support.old_warehouse import FILES, Old

MINUTE_MS, DAY_MS = 60_000, 86_400_000
BEGIN_MS = 20_000 * DAY_MS
MakeSettings = Callable[..., Settings]


def counted(old: Old, minute: int, received: int) -> None:
    """Records of a broker that were read in a minute."""
    row = {
        "cluster": "c",
        "broker": "b",
        "minute_ms": BEGIN_MS + minute * MINUTE_MS,
        "received": received,
        "quarantined": 1,
    }
    rows = shaped(pa.Table.from_pylist([row]), TABLES["coverage_counts"], {})
    write_deltalake(f"{old.location.uri}/coverage_counts", rows, mode="append")


def archived(old: Old, minute: int, count: int) -> None:
    """Records of that minute that the archive has."""
    row = {
        "event_type": "publish",
        "cluster": "c",
        "broker": "b",
        "ts_wall_ms": BEGIN_MS + minute * MINUTE_MS,
        "ingest_ms": BEGIN_MS,
        "event_date": datetime.fromtimestamp(BEGIN_MS // 1000, UTC).date(),
    }
    rows = shaped(pa.Table.from_pylist([row] * count), TABLES["events"], {})
    write_deltalake(f"{old.location.uri}/events", rows, mode="append", partition_by=["event_date"])


@pytest.fixture
def old(tmp_path: Path) -> Old:
    """Two minutes, whole, whose archive ends in a source of files."""
    made = Old(tmp_path / "old", FILES)
    for minute in (0, 1):
        counted(made, minute, 11)
        archived(made, minute, 10)
    made.plan(0)
    made.end(0)
    return made


@pytest.fixture
def settings(make_settings: MakeSettings, tmp_path: Path) -> Settings:
    (tmp_path / "in").mkdir()
    made = make_settings(source={"format": "files", "path": str(tmp_path / "in")})
    manifest.claim(made.location, 2, 4)
    return made


def said(settings: Settings, old: Old) -> list[str]:
    return [
        note.replace(old.location.uri, "OLD")
        for note in continuing.begin(settings, old.location.uri, ["govern"])
    ]


def test_a_whole_archive_is_named_with_what_follows_it(settings: Settings, old: Old) -> None:
    path = settings.feed.path
    assert said(settings, old) == [
        f"archive of OLD: 20 records come first, then files {path} from where it ends"
    ]
    assert said(settings, old) == [], "at the next start it is known"


def test_what_retention_has_removed_is_said(settings: Settings, old: Old) -> None:
    REMOVED.keep(old.location, DONE, {"events": BEGIN_MS})
    assert said(settings, old)[1:] == [
        "archive of OLD: retention has removed its records before 2024-10-04T00:00:00Z; jobs begin"
        " there as with a source that begins there"
    ]


def test_a_gap_is_said_with_what_to_do(settings: Settings, old: Old) -> None:
    for minute, count in ((2, 7), (3, 10), (4, 0)):
        counted(old, minute, 11)
        if count:
            archived(old, minute, count)
    assert said(settings, old)[1:] == [
        "archive of OLD: 13 records of 2 minutes of brokers between 2024-10-04T00:02:00Z and"
        " 2024-10-04T00:04:00Z are missing, and will be here (quality names them); where the source"
        " still has them, begin a warehouse without --from-archive"
    ]


def test_polls_that_the_archive_has_not_wait_in_the_new_warehouse(
    settings: Settings, old: Old
) -> None:
    """The archive ends in `kafka_groups.a` behind the poll at 7, whose first record is number 8."""
    polls = Path(old.location.uri, "_weir", "polls")
    for feed in ("kafka_groups.a", "kafka_groups.b"):
        (polls / feed / "polls").mkdir(parents=True)
        (polls / feed / "memory.json").write_text(feed)
        for at_ms, seq in ((6, 4), (7, 8), (8, 12)):
            (polls / feed / "polls" / f"poll-{at_ms:015d}-{seq:015d}.jsonl.gz").write_bytes(b"")
    said(settings, old)
    for _ in range(2):  # also where a kill has come between
        first = continuing.filling(settings)
        assert first is not None
    assert [feed.format for feed in first.feeds] == ["archive"]
    assert first.jobs == settings.jobs and first.alerts.interval_ms is None
    new = Path(settings.warehouse, "_weir", "polls")
    found = {str(file.relative_to(new)) for file in new.rglob("*") if file.is_file()}
    assert found == {
        "kafka_groups.a/memory.json",
        f"kafka_groups.a/polls/poll-{8:015d}-{12:015d}.jsonl.gz",
        "kafka_groups.b/memory.json",
        *(
            f"kafka_groups.b/polls/poll-{at_ms:015d}-{seq:015d}.jsonl.gz"
            for at_ms, seq in ((6, 4), (7, 8), (8, 12))
        ),
    }
    succession.finish(settings.location, [])
    assert continuing.filling(settings) is None
