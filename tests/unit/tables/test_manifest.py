"""The manifest: written at the first start, and what does not fit it is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.errors import UserError
from app.tables import manifest

MakeSettings = Callable[..., Settings]


def test_the_first_start_writes_what_later_ones_keep(make_settings: MakeSettings) -> None:
    settings = make_settings(partitions=3, shards=8)
    assert manifest.load(settings.location) is None
    assert manifest.check(settings.location, settings.partitions, settings.shards) is None

    made = manifest.claim(settings.location, 3, settings.shards)
    assert (
        manifest.load(settings.location)
        == made
        == manifest.claim(settings.location, 3, settings.shards)
    )
    document = json.loads((Path(settings.warehouse) / "_weir" / "manifest.json").read_text())
    assert document == {
        "layout_version": 3,
        "partitions": 3,
        "shards": 8,
        "created_ms": made.created_ms,
        "queries": None,
        "topics": None,
        "id": made.id,
    }


@pytest.mark.parametrize(
    ("change", "first_line", "second_line"),
    [
        (
            {"partitions": 4},
            "partitions: 4 does not fit the warehouse, whose state is in 3 partitions ({path})",
            "set partitions to 3, or begin {way}",
        ),
        (
            {"shards": 16},
            "shards: 16 does not fit the warehouse, whose state is in 8 shards ({path})",
            "set shards to 8, or begin {way}",
        ),
    ],
)
def test_other_numbers_than_those_of_the_state_are_refused(
    make_settings: MakeSettings, change: dict[str, int], first_line: str, second_line: str
) -> None:
    first = {"partitions": 3, "shards": 8}
    began = make_settings(**first)
    manifest.claim(began.location, 3, began.shards)
    settings = make_settings(**{**first, **change})
    with pytest.raises(UserError) as refused:
        manifest.check(settings.location, settings.partitions, settings.shards)
    path = f"{settings.warehouse}/_weir/manifest.json"
    way = (
        "a new warehouse that continues this one: its archive, then the source from where that ends\n"
        f"./spark-submit.sh run --config weir.yaml --warehouse {settings.warehouse}-new"
        f" --from-archive {settings.warehouse}"
    )
    assert str(refused.value) == "\n".join(
        line.format(path=path, way=way) for line in (first_line, second_line)
    )


def test_without_a_configured_number_the_manifest_decides(make_settings: MakeSettings) -> None:
    manifest.claim(make_settings().location, 3, None)
    settings = make_settings(partitions=None)
    kept = manifest.check(settings.location, settings.partitions, settings.shards)
    assert kept is not None and kept.partitions == 3
    with pytest.raises(UserError, match="partitions: 2 does not fit"):
        manifest.check(settings.location, 2, settings.shards)


def test_two_shards_for_each_partition_of_the_first_start(make_settings: MakeSettings) -> None:
    """Another machine has other cores: the warehouse keeps its numbers."""
    settings = make_settings(partitions=None)
    assert manifest.numbers(settings.location) == {}
    assert manifest.claim(settings.location, 3, settings.shards).shards == 6
    found = settings.model_copy(update=manifest.numbers(settings.location))
    assert (found.partitions, found.shards, found.shard_count) == (3, 6, 6)
    assert manifest.claim(found.location, 3, found.shards) == manifest.load(settings.location)


def test_the_configured_shards_are_taken(make_settings: MakeSettings) -> None:
    assert manifest.claim(make_settings().location, 3, 5).shards == 5


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"layout_version": 3}', "not json"])
def test_what_is_no_manifest_is_refused_by_name(make_settings: MakeSettings, text: str) -> None:
    settings = make_settings()
    file = Path(settings.warehouse) / "_weir" / "manifest.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(UserError) as refused:
        manifest.load(settings.location)
    assert str(refused.value).startswith(f"warehouse: {file} is damaged (")
    assert len(str(refused.value).splitlines()) == 2


def test_a_warehouse_of_another_layout_is_refused_with_the_way_on(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings()
    manifest.claim(settings.location, 2, settings.shards)
    file = Path(settings.warehouse) / "_weir" / "manifest.json"
    file.write_text(file.read_text().replace('"layout_version": 3', '"layout_version": 4'))
    with pytest.raises(UserError) as refused:
        manifest.check(settings.location, settings.partitions, settings.shards)
    assert str(refused.value).splitlines() == [
        f"{file}: the warehouse has layout version 4, and this Weir reads layout version 3",
        *(
            "continue with the Weir that wrote it, or begin "
            + manifest.filled_anew(settings.location)
        ).splitlines(),
    ]


def test_a_warehouse_that_cannot_be_written_is_refused(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"warehouse: cannot write .*file/_weir/manifest\.json"):
        manifest.claim(make_settings(warehouse=str(tmp_path / "file")).location, 2, None)
