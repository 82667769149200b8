"""The first batch of a query is planned anew if its records are deleted before they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.config.settings import Settings
from app.tables import checkpoints


def written(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("v1\n{}", "utf-8")


def test_a_plan_is_forgotten_only_before_anything_was_read(
    make_settings: Callable[..., Settings],
) -> None:
    settings = make_settings()
    folder = Path(settings.warehouse) / checkpoints.FOLDER / "govern"
    assert checkpoints.plan_anew(settings.location, "govern"), "nothing is planned"
    written(folder, "offsets/0", "offsets/.0.crc", "sources/0/0", "sources/0/.0.crc", "metadata")
    assert checkpoints.begun(settings.location, "govern")
    assert checkpoints.plan_anew(settings.location, "govern")
    assert not checkpoints.begun(settings.location, "govern")
    left = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    assert left == ["metadata"], "the application id of its commits stays"
    written(folder, "offsets/0", "sources/0/0", "commits/0")
    assert not checkpoints.plan_anew(settings.location, "govern"), "what was read is not forgotten"
    assert checkpoints.begun(settings.location, "govern")


def test_an_object_store_is_left_alone(make_settings: Callable[..., Settings]) -> None:
    assert not checkpoints.plan_anew(make_settings(warehouse="s3://bucket/weir").location, "govern")
