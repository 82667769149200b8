"""Where traces go, and how their lines are written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from app.config.settings import load_settings
from app.errors import UserError
from benchmarks.generator.generate_command import generate, main
from benchmarks.generator.json_lines import write_lines
from benchmarks.generator.trace import ArrivalSlice, Trace
from benchmarks.generator.trace_rows import NULL, TraceTexts, make_rows
from benchmarks.generator.write import write_files
from tests.support.unwritable import unwritable

NUMBERS = (0, 9, 10, 99, 100, -1, 12_661_901_972_592_310, 2**63 - 1, -(2**63) + 1)


def test_line_has_each_value_exactly_and_none_of_the_missing_ones() -> None:
    texts = TraceTexts()
    rows = make_rows(
        len(NUMBERS),
        event_type=texts.add('a "quoted" näme\n'),
        seq=np.array(NUMBERS),
        ack_cumulative=texts.add_raw(b"true"),
        mark_delete=7,
        mark_delete_entry=-1,
        topic=NULL,
    )
    data, ends = write_lines(rows, np.arange(len(NUMBERS))[::-1], texts)
    lines = [json.loads(line) for line in data.tobytes().splitlines()]
    assert lines == [
        {"event_type": 'a "quoted" näme\n', "seq": n, "ack_cumulative": True, "mark_delete": "7:-1"}
        for n in reversed(NUMBERS)
    ]
    assert ends[-1] == data.size


def test_malformed_line_ends_where_its_tail_ends() -> None:
    texts = TraceTexts()
    rows = make_rows(1, event_type=texts.add("publish"), tail=texts.add_raw(b',"topic":"x'))
    data, _ = write_lines(rows, np.arange(1), texts)
    assert data.tobytes() == b'{"event_type":"publish","topic":"x\n'


def test_files_hold_the_slices_and_are_as_old_as_they_are_late(
    small: Trace, slices: list[ArrivalSlice], tmp_path: Path
) -> None:
    seen: list[str] = []
    written = write_files(small, tmp_path / "events", lambda part: seen.append(part.name))
    found = sorted((tmp_path / "events").iterdir())
    assert [f.name for f in found] == [part.name for part in slices] == seen
    assert [f.read_bytes() for f in found] == [part.data.tobytes() for part in slices]
    ages = [f.stat().st_mtime_ns for f in found]
    assert ages == sorted(set(ages))
    assert written.events == sum(part.ends.size for part in slices)


def test_command_writes_events_and_policies_that_the_settings_accept(
    tmp_path: Path, small: Trace, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--scenario", "small", "--events", str(small.events), "--seed", str(small.seed)]
    assert main([*words, "--out", str(tmp_path)]) == 0
    settings = load_settings(tmp_path / "weir.yaml")
    assert settings.policy_dicts() == small.policies
    assert settings.feed.path == str(tmp_path / "events")
    assert settings.warehouse == str(tmp_path / "warehouse")
    said = capsys.readouterr().out
    assert "noisy-neighbour" in said
    assert "UNPARSEABLE" in said


def test_folder_that_holds_events_is_refused(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "events-00000.jsonl").touch()
    with pytest.raises(UserError, match=r"already holds events-\*\.jsonl; choose another folder"):
        generate("small", 20_000, 7, out=tmp_path)


def test_unknown_scenario_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--scenario dmeo: is not one of .*, demo, .*, small$"):
        generate("dmeo", 20_000, 7, out=tmp_path)


def test_a_folder_that_cannot_be_written_is_for_the_user_to_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    with unwritable(locked):
        assert main(["--events", "30000", "--out", f"{locked}/trace"]) == 2
    said = capsys.readouterr().err
    assert f"weir: --out {locked}/trace/events: cannot be written" in said
    assert "Traceback" not in said
