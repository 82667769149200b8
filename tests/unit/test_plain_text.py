"""Lines and digits of protocols: whatever names hold, LF alone ends a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config.location import Location
from app.errors import UserError, reason
from app.plain_text import is_digits, lines_of
from app.tables.log_files import unfinished_commit
from app.tables.spark_files import SourceFile, SourceLog

ENDS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r\0\ufeff"
"""What `str.splitlines` takes for an end of a line, and two that some readers leave out."""


@given(
    st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8") | st.sampled_from(ENDS)))
)
def test_lf_alone_ends_a_line(wanted: list[str]) -> None:
    whole = "".join(f"{line}\n" for line in wanted)
    assert lines_of(whole) == wanted
    assert lines_of(whole.encode()) == [line.encode() for line in wanted]
    if wanted and wanted[-1]:
        assert lines_of(whole[:-1]) == wanted


@pytest.mark.parametrize("text", ["", "-1", "+1", "1_0", "\u0661", "\u00b2", " 1", "1\n", "1.0"])
def test_digits_are_those_of_ascii(text: str) -> None:
    assert not is_digits(text)
    assert is_digits("0123456789" * 1000)


@pytest.mark.parametrize("end", ENDS)
def test_a_commit_with_any_character_in_a_name_is_finished(tmp_path: Path, end: str) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    file = log / f"{0:020d}.json"
    name = json.dumps({"add": {"path": f"topic=a{end}b"}}, ensure_ascii=False)
    file.write_bytes(f'{{"commitInfo":{{}}}}\n{name}'.encode())
    assert unfinished_commit(str(tmp_path)) is None
    file.write_bytes(f'{{"commitInfo":{{}}}}\n{name[:-1]}'.encode())
    assert unfinished_commit(str(tmp_path)) == file


@pytest.mark.parametrize("end", ENDS)
def test_the_log_of_files_has_names_with_any_character(tmp_path: Path, end: str) -> None:
    folder = tmp_path / "_weir" / "checkpoints" / "govern" / "sources" / "0"
    folder.mkdir(parents=True)
    entry = json.dumps({"path": f"file:///in/a{end}b.jsonl", "batchId": 0}, ensure_ascii=False)
    (folder / "0").write_bytes(f"v1\n{entry}\n{entry}".encode())
    (folder / "\u00b2").write_text("of no query")
    found = SourceLog(Location(str(tmp_path)), "govern")
    assert found.last == 0
    assert list(found.files(0)) == [SourceFile(f"file:///in/a{end}b.jsonl", 0)] * 2


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("a\nb"), "a"),
        (ValueError("\n a \x0b\u2028\ud800b\r"), "a    b"),
        (ValueError(), "ValueError"),
        (UserError("weir.yaml: x\nallowed: y"), "weir.yaml: x"),
        (ValueError("x" * 1000), "x" * 300),
    ],
)
def test_a_reason_is_one_printable_line(error: Exception, line: str) -> None:
    assert reason(error) == line
