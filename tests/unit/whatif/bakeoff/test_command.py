"""The command `bakeoff` over files and over an archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from app.cli import main
from app.config.settings import Settings
from app.jobs.entry_cache.whatif.command import EQUAL, TABLE
from app.tables.definitions import TABLES
from app.tables.manifest import LAYOUT_VERSION
from state.entry_cache.outputs import POLICIES
from tests.support.producer_quota import archive
from tests.unit.state.entry_cache_input import added, cursor, read
from tests.unit.whatif.bakeoff.traces import cache_records, write_lines

SIZES = "4kB,8kB,16kB"
BYTES = [4000, 8000, 16000]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with the trace of a key-shared subscription with a slow consumer."""
    return str(write_lines(tmp_path_factory.mktemp("lines") / "t.jsonl", cache_records()))


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["bakeoff", *words])
    out, err = capsys.readouterr()
    return code, out, err


def found(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code, out, _ = told(capsys, *words, "--json")
    assert code == 0
    answer: dict[str, Any] = json.loads(out)
    return answer


def results(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (r["broker"], r["policy"], r["max_bytes"], r["hits"], r["misses"], r["storage_bytes"])
        for r in answer["rows"]
    ]


def test_archive_and_files_give_the_same_answer(
    lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(warehouse=str(tmp_path / "wh"))
    archive(settings, cache_records())
    archived = found(capsys, "--warehouse", settings.warehouse, "--sizes", SIZES)
    read = found(capsys, "--trace", lines, "--sizes", SIZES)
    assert results(archived) == results(read)
    assert archived["records"] == read["records"]
    assert archived["release_event"] == "entry_released"  # there are records of reads
    rows = [r for r in archived["rows"] if r["broker"] is None]
    assert [(r["policy"], r["max_bytes"]) for r in rows] == [
        (p, s) for p in POLICIES for s in BYTES
    ]
    assert all(r["hits"] + r["misses"] == read["records"]["entry_read"] for r in rows)


def test_rows_are_kept_in_the_warehouse(
    lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse = str(tmp_path / "wh")
    answer = found(
        capsys,
        "--trace",
        lines,
        "--sizes",
        "8kB",
        "--warehouse",
        warehouse,
        "--policies",
        "fifo,lru",
        "--vary",
        "grace_ms=0,9",
    )
    kept = DeltaTable(f"{warehouse}/{TABLE}").to_pyarrow_table()
    assert kept.schema.equals(TABLES[TABLE].schema)
    rows = [
        {**r, "settings": dict(r["settings"]), "switches": dict(r["switches"])}
        for r in kept.to_pylist()
    ]
    assert rows == answer["rows"] and len(rows) == 8
    assert [r["settings"] for r in rows[::2]] == [{"grace_ms": "0"}, {"grace_ms": "9"}] * 2
    assert main(["query", "cache-bakeoff", "--warehouse", warehouse, "--json"]) == 0
    asked = json.loads(capsys.readouterr().out)
    assert sorted(r["policy"] for r in asked) == ["fifo", "fifo", "lru", "lru"]


def test_without_a_warehouse_nothing_is_written(
    lines: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = told(capsys, "--trace", lines)
    assert (code, err) == (0, "")
    assert list(tmp_path.iterdir()) == []
    assert "on 1 broker" in out.splitlines()[0]
    # seven sizes by default, and every policy
    assert {len(line.split("  ")) > 7 for line in out.splitlines()[4:10]} == {True}
    assert [line.split()[0] for line in out.splitlines()[4:10]] == list(POLICIES)


@pytest.mark.parametrize(
    ("policy", "vary", "equal"),
    [
        ("expected_reads", "managedLedgerMinimumBacklogCursorsForCaching=0,3", True),
        ("expected_reads", "managedLedgerCacheEvictionTimeThresholdMillis=1,100000", False),
        ("fifo,lru", "", False),
    ],
)
def test_what_is_varied_without_an_effect_is_said(
    lines: str, capsys: pytest.CaptureFixture[str], policy: str, vary: str, equal: bool
) -> None:
    words = ["--trace", lines, "--policies", policy, *(["--vary", vary] if vary else [])]
    code, out, err = told(capsys, *words)
    assert (code, err) == (0, "")
    assert out.splitlines().count(EQUAL.format(policy)) == equal
    assert out.count("changes nothing") == equal


def test_the_configured_size_and_its_double_are_replayed(
    lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "weir.yaml"
    config.write_text(f"warehouse: {tmp_path / 'wh'}\nentry_cache: {{max_bytes: 7777}}\n")
    answer = found(capsys, "--trace", lines, "--config", str(config))
    sizes = {r["max_bytes"] for r in answer["rows"]}
    assert len(sizes) == 9 and {7777, 2 * 7777} <= sizes


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--sizes", "0"], "--sizes 0: is not a size above 0"),
        (["--sizes=-1"], "--sizes -1: is not a size above 0"),
        (["--sizes", "0.4"], "--sizes 0.4: is not a size above 0"),
        (
            ["--sizes", str(2**63)],
            f"--sizes {2**63}: is above the largest size ({2**62 - 1} bytes)",
        ),
        (
            ["--sizes", str(2**62)],
            f"--sizes {2**62}: is above the largest size ({2**62 - 1} bytes)",
        ),
        (["--sizes", "9" * 400], "is not a size above 0"),
        (["--vary", "grace_ms=[1"], "--vary grace_ms=[1: line 1: did not find expected ',' or ']'"),
        (["--vary", "grace_ms=-1"], "--vary grace_ms=-1: grace_ms: -1 is below 0"),
        (["--sizes", "64XB"], "--sizes 64XB: is not a size above 0 (allowed: bytes, or a number"),
        (["--sizes", ","], "--sizes: names none"),
        (
            ["--policies", "exspected_reads"],
            "is not a policy (did you mean expected_reads? allowed: ",
        ),
        (["--policies", ","], "--policies: names none (allowed: expected_reads, "),
        (["--vary", "grace_ms"], "--vary grace_ms: write NAME=VALUE,VALUE"),
        (["--vary", "grace_ms=x"], "--vary grace_ms=x: grace_ms: 'x' is not a whole number"),
        (["--vary", "policy=fifo"], "--vary policy: is not a setting of a cache (allowed: "),
        (["--vary", "grace_ms=1", "--vary", "grace_ms=2"], "is given twice"),
    ],
)
def test_a_mistake_is_told_with_what_is_allowed(
    words: list[str], says: str, lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = told(capsys, "--trace", lines, *words)
    assert (code, out) == (2, "") and says in err


def test_what_has_no_entries_of_a_cache_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(warehouse=str(tmp_path / "wh"))
    warehouse = ["--warehouse", settings.warehouse]
    assert told(capsys, *warehouse)[2].startswith(f"weir: warehouse: {settings.warehouse} does not")
    (tmp_path / "wh" / "_weir").mkdir(parents=True)
    assert "bakeoff: the archive is empty" in told(capsys, *warehouse)[2]
    archive(settings, [])
    assert "has no records of entries and cursors" in told(capsys, *warehouse)[2]
    newer = {"layout_version": LAYOUT_VERSION + 1, "partitions": 2, "shards": 16, "created_ms": 1}
    (tmp_path / "wh" / "_weir" / "manifest.json").write_text(json.dumps(newer))
    code, out, err = told(capsys, *warehouse)
    assert (code, out) == (2, "") and "the warehouse has layout version" in err
    publishes = [{**r, "event_type": "publish"} for r in cache_records()[:9]]
    path = str(write_lines(tmp_path / "a.jsonl", publishes))
    assert "has no records of entries and cursors" in told(capsys, "--trace", path)[2]
    added = [r for r in cache_records() if r["event_type"] == "entry_added"]
    path = str(write_lines(tmp_path / "b.jsonl", added))
    code, out, err = told(capsys, "--trace", path)
    assert (code, out) == (2, "") and "has no dispatch records, which are the reads" in err
    assert "does not exist" in told(capsys, "--trace", str(tmp_path / "none"))[2]
    (tmp_path / "empty").mkdir()
    assert "has no files of JSON lines" in told(capsys, "--trace", str(tmp_path / "empty"))[2]


def test_the_largest_size_holds_everything(lines: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = found(capsys, "--trace", lines, "--sizes", f"1,{2**62 - 1}", "--policies", "lru,fifo")
    by_size = {(r["policy"], r["max_bytes"]): r for r in answer["rows"] if r["broker"] is None}
    assert set(by_size) == {(p, s) for p in ("lru", "fifo") for s in (1, 2**62 - 1)}
    for policy in ("lru", "fifo"):
        assert by_size[policy, 1]["hits"] <= by_size[policy, 2**62 - 1]["hits"] > 0
        assert by_size[policy, 2**62 - 1]["evicted_wanted"] == 0


@pytest.mark.parametrize("words", [[], ["--sizes", "1,1GB"]], ids=" ".join)
def test_a_trace_of_one_read_is_replayed(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (read,) = [r for r in cache_records() if r["event_type"] == "entry_read"][:1]
    path = str(write_lines(tmp_path / "one.jsonl", [read]))
    answer = found(capsys, "--trace", path, "--policies", "lru", *words)
    assert answer["records"] == {"entry_read": 1}
    assert {(r["hits"], r["misses"]) for r in answer["rows"]} == {(0, 1)}
    code, out, _ = told(capsys, "--trace", path, *words)
    assert code == 0 and out.startswith("1 read of ")


@pytest.mark.parametrize("entry_bytes", [0, 2**31 - 1, 2**40])
def test_entries_of_extreme_lengths_are_replayed(
    entry_bytes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {**r, "entry_bytes": entry_bytes} if r.get("entry_bytes") is not None else r
        for r in cache_records()
    ]
    path = str(write_lines(tmp_path / "long.jsonl", rows))
    size = max(100 * entry_bytes, 1)
    answer = found(capsys, "--trace", path, "--policies", "lru", "--sizes", str(size))
    (row,) = [r for r in answer["rows"] if r["broker"] is None]
    assert row["hits"] + row["misses"] == answer["records"]["entry_read"]
    assert row["storage_bytes"] == row["misses"] * entry_bytes
    assert row["hit_bytes"] == row["hits"] * entry_bytes


def seeking_back(active: bool | None) -> list[dict[str, Any]]:
    """Three subscriptions go back to the first of 1,200 entries when nothing of them is cached."""
    names = "abc"
    return [
        *(cursor(0, name, active=active) for name in names),
        *(added(1 + i, i) for i in range(1200)),
        *(cursor(200_000 + i, name, "1:0", active=active) for i, name in enumerate(names)),
        *(read(200_010 + 3 * e + i, e, name) for e in range(1200) for i, name in enumerate(names)),
    ]


@pytest.mark.parametrize(
    ("active", "vary", "ratios"),
    [
        # apache/pulsar#12257 and #14495: without expected reads nothing of a backlog is cached
        (None, "", {"expected_reads": 2 / 3, "fifo": 0, "proportional": 0, "lru": 2 / 3}),
        # a broker without expected reads has made the cursors inactive
        (False, "", {"expected_reads": 0, "expected_reads_stash": 0, "fifo": 0, "belady": 2 / 3}),
        (
            None,
            "storage_reads=all",
            {"expected_reads": 2 / 3, "fifo": 2 / 3, "proportional": 2 / 3},
        ),
        # three backlogs that are alike: two other cursors are near each
        (None, "managedLedgerMinimumBacklogCursorsForCaching=2", {"fifo": 2 / 3}),
        (None, "managedLedgerMinimumBacklogCursorsForCaching=3", {"fifo": 0}),
    ],
)
def test_readers_that_catch_up_find_what_a_broker_keeps_of_their_reads(
    active: bool | None,
    vary: str,
    ratios: dict[str, float],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = str(write_lines(tmp_path / "t.jsonl", seeking_back(active)))
    words = ["--trace", trace, "--sizes", "1MB", "--policies", ",".join(ratios)]
    answer = found(capsys, *words, *(["--vary", vary] if vary else []))
    rows = {r["policy"]: r["hit_ratio"] for r in answer["rows"] if r["broker"] is None}
    assert rows == pytest.approx(ratios)
