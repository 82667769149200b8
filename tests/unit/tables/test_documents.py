"""Files that a run writes again: damaged ones count as missing, in every reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.config.described import described
from app.config.settings import Settings
from app.run.maintenance import retention
from app.show.metrics import check_durations, health
from app.show.reconcile import comparing
from app.show.reconcile.scrape import Scrape
from app.tables import last_configuration, retained
from app.tables.json_documents import Document
from app.tables.small_files import RECONCILE, Damaged

MakeSettings = Callable[..., Settings]
DAMAGED = (
    b"",
    b"{",
    b"null",
    b"[]",
    b"7",
    b'{"name": 7, "scrapes": 7, "config": 7, "a": "b"}',
    b"\xff\x00\xfe",
)
READERS: dict[str, Callable[[Settings], Any]] = {
    last_configuration.NAME: lambda settings: last_configuration.load(settings.location),
    f"{health.FOLDER}/govern.json": lambda settings: list(health.samples(settings.location)),
    retained.DONE: lambda settings: (
        retention.RetentionRules(settings.location, settings.maintenance, 0) and None
    ),
    RECONCILE: lambda settings: (
        comparing.ReadingMemory.load(settings.location, Scrape).scrapes
        or list(check_durations.samples(settings.location))
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_written_again(make_settings: MakeSettings, name: str) -> None:
    settings = make_settings()
    file = Path(settings.warehouse, name)
    assert not READERS[name](settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    for text in DAMAGED:
        file.write_bytes(text)
        assert not READERS[name](settings), text


def test_what_was_written_is_read(make_settings: MakeSettings) -> None:
    settings = make_settings()
    last_configuration.keep(settings.location, described(settings, 1))
    kept = last_configuration.load(settings.location)
    assert kept is not None and kept == described(settings, kept.started_ms)
    settings = make_settings(reconcile={"brokers": {"b:1": "http://127.0.0.1:1"}})
    memory = comparing.ReadingMemory[Scrape]("id", 3, [{"a": 1.5}], {"b:1": []})
    memory.keep(settings.location)
    assert comparing.ReadingMemory.load(settings.location, Scrape) == memory


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b" ", "empty"),
        (b"\xff", "not text"),
        (b'{"a": "b"}', "a: Input should be a valid integer"),
    ],
)
def test_a_damaged_file_is_refused_with_path_reason_and_remedy(
    make_settings: MakeSettings, text: bytes, reason: str
) -> None:
    settings = make_settings()
    numbers: Document[dict[str, int]] = Document(dict[str, int], "remove it")
    assert numbers.load(settings.location, "_weir/n.json") is None
    numbers.keep(settings.location, "_weir/n.json", {"ä": 1})
    assert numbers.load(settings.location, "_weir/n.json") == {"ä": 1}
    file = Path(settings.warehouse, "_weir/n.json")
    file.write_bytes(text)
    with pytest.raises(Damaged) as refused:
        numbers.load(settings.location, "_weir/n.json")
    assert str(refused.value) == f"warehouse: {file} is damaged ({reason})\nremove it"
    file.unlink()
    file.mkdir()
    with pytest.raises(Damaged, match="Is a directory"):
        numbers.load(settings.location, "_weir/n.json")
