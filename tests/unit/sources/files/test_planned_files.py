"""Files that a query has planned to read and that are gone: Spark leaves them out without an
error, Weir refuses them by name."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app import sources
from app.config.settings import Settings
from app.errors import UserError
from app.sources.files import planned_files
from app.sources.files.line_files import lines_of
from app.tables import checkpoints
from app.tables.small_files import write_text

MakeSettings = Callable[..., Settings]
QUERY = "govern"


class Planned:
    """A checkpoint as Spark leaves it: one file in each entry of the log of its source."""

    def __init__(self, settings: Settings, folder: Path, entries: int) -> None:
        self.settings, self.folder = settings, folder
        folder.mkdir()
        for number in range(entries):
            file = folder / f"{number} ä.jsonl"
            file.write_text("{}\n")
            name = file.as_uri()
            self._write(f"sources/0/{number}", {"path": name, "timestamp": 1, "batchId": number})

    def batches(self, *ends: int, ended: int) -> None:
        """Batches up to these entries, of which the first `ended` have ended."""
        for batch, end in enumerate(ends):
            self._write(f"offsets/{batch}", {"batchWatermarkMs": 0}, {"logOffset": end})
            if batch < ended:
                self._write(f"commits/{batch}", {"nextBatchWatermarkMs": 0})

    def lose(self, *numbers: int) -> None:
        for number in numbers:
            (self.folder / f"{number} ä.jsonl").unlink()

    @property
    def problems(self) -> list[str]:
        return list(planned_files.problems(self.settings.feed, self.settings.location, QUERY))

    def _write(self, name: str, *lines: object) -> None:
        write_text(
            self.settings.location,
            f"{checkpoints.FOLDER}/{QUERY}/{name}",
            "\n".join(["v1", *map(json.dumps, lines)]),
        )


@pytest.fixture
def planned(make_settings: MakeSettings, tmp_path: Path) -> Planned:
    folder = tmp_path / "in"
    return Planned(make_settings(source={"format": "files", "path": str(folder)}), folder, 6)


def test_files_of_ended_batches_may_go(planned: Planned) -> None:
    planned.batches(1, 5, ended=2)
    planned.lose(0, 1, 4, 5)
    assert planned.problems == []


def test_a_file_of_a_batch_that_has_not_ended_is_named_with_the_remedy(planned: Planned) -> None:
    planned.batches(1, 3, 5, ended=2)
    planned.lose(3, 4)
    assert planned.problems == [
        f"source.path: {planned.folder}/4 ä.jsonl: gone, and govern has planned to read it\n"
        "put it back; an empty file of the same name leaves the records out"
    ]


def test_a_file_that_was_found_and_is_in_no_plan_yet_is_not_looked_for_again(
    planned: Planned,
) -> None:
    """Spark logs what it finds before it plans a batch, and reads it in the next one."""
    planned.batches(1, 3, ended=2)
    planned.lose(5)
    assert "5 ä.jsonl: gone" in planned.problems[0]


def test_a_first_batch_and_many_files(planned: Planned) -> None:
    planned.lose(0, 1, 2, 3, 4)
    assert planned.problems[0].startswith(f"source.path: {planned.folder}/0 ä.jsonl, ")
    assert (
        "/2 ä.jsonl and 2 more: gone, and govern has planned to read them\n"
        in (planned.problems[0])
    )


def test_a_batch_whose_file_goes_while_it_is_planned_writes_nothing(planned: Planned) -> None:
    planned.batches(1, 3, ended=1)
    written: list[int] = []
    write = planned_files.compared(
        planned.settings.feed,
        planned.settings.location,
        QUERY,
        lambda _frame, batch: written.append(batch),
    )
    planned.lose(0)  # of a batch before
    frame: Any = None
    write(frame, 1)
    planned.lose(2)
    with pytest.raises(UserError, match=r"2 ä\.jsonl: gone, and govern has planned"):
        write(frame, 1)
    assert written == [1]


def test_other_sources_have_no_files(make_settings: MakeSettings) -> None:
    kafka = {"format": "kafka", "options": {"kafka.bootstrap.servers": "x:1", "subscribe": "a"}}
    settings = make_settings(source=kafka)
    write_text(
        settings.location, f"{checkpoints.FOLDER}/{QUERY}/sources/0/0", '\0v1\n{"a":{"0":0}}'
    )
    assert list(planned_files.problems(settings.feed, settings.location, QUERY)) == []
    assert list(planned_files.problems(None, settings.location, QUERY)) == []


@pytest.mark.parametrize("text", ["", "v1\n{", "v1\n{}", "v1\n[]"])
def test_a_plan_that_cannot_be_read_is_refused(planned: Planned, text: str) -> None:
    name = f"{checkpoints.FOLDER}/{QUERY}/sources/0/5"
    write_text(planned.settings.location, name, text)
    with pytest.raises(UserError, match=r"sources/0/5 is damaged"):
        _ = planned.problems


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_an_empty_file_in_the_place_of_one_that_is_lost_has_no_records(
    tmp_path: Path, name: str
) -> None:
    """The remedy where there is no copy."""
    (tmp_path / name).touch()
    assert [*lines_of(str(tmp_path / name), str(tmp_path), None)] == []
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress(b""))
        assert [*lines_of(str(tmp_path / name), str(tmp_path), None)] == []


@pytest.mark.parametrize(
    ("source", "names", "sentence"),
    [
        (
            "files",
            ("a.jsonl", "_b.jsonl", ".c.json.gz", "sub/_d/e.jsonl", "_notes.txt"),
            "3 files are",
        ),
        ("files", ("a.jsonl", "b.jsonl", "_SUCCESS", ".a.jsonl.unfinished"), None),
        ("kafka_logs", ("server.log", "_request.log"), "1 file is"),
    ],
)
def test_hidden_files_are_named_once_at_the_start(
    make_settings: MakeSettings,
    tmp_path: Path,
    source: str,
    names: tuple[str, ...],
    sentence: str | None,
) -> None:
    for name in names:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).touch()
    settings = make_settings(source={"format": source, "path": str(tmp_path / "in")})
    found = sources.notes(settings)
    assert len(found) == bool(sentence)
    if sentence:
        assert found[0].startswith(f"source.path: {sentence} not read, because names begin with")


def test_a_pattern_names_hidden_files_that_it_matches(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    for name in ("a.log", "_b.log", "_c.txt"):
        (tmp_path / name).touch()
    settings = make_settings(source={"format": "files", "path": f"{tmp_path}/*.log"})
    (note,) = sources.notes(settings)
    assert f"such as {tmp_path}/_b.log;" in note
