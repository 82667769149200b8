"""Files of a warehouse and its checkpoints that are gone, damaged or of another run: each is
refused with its path and a remedy before anything starts, or makes no difference."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.config.settings import Settings, load_settings
from app.errors import UserError
from app.run import integrity
from app.run.preflight import refuse
from app.tables import checkpoints, formats, manifest, spark_files
from app.tables.definitions import TABLES
from app.tables.gathering import GatheringWriter
from app.tables.shape import shaped
from app.tables.small_files import PUT_BACK

STOPPED = Path(__file__).parents[2] / "data" / "stopped_warehouse.tar.xz"
"""After two batches of every job and of the archive, which has a query of its own."""
WAREHOUSE = "warehouse"
GOVERN, STORED = "_weir/checkpoints/govern", "_weir/checkpoints/archive"
GATHERS = "limiter_stats"
DOCUMENTS = (
    manifest.NAME,
    formats.NAME,
    f"{GOVERN}/weir-query.json",
    f"{GOVERN}/weir-policies.json",
    f"{GOVERN}/weir-committed.json",
    f"{STORED}/weir-query.json",
    f"{STORED}/weir-committed.json",
)
SPARK = tuple(
    f"{query}/{name}"
    for query, names in (
        (
            GOVERN,
            (
                "metadata",
                "offsets/1",
                "commits/1",
                "sources/0/0",
                "state/0/0/1.changelog",
                "state/0/1/2.changelog",
            ),
        ),
        (STORED, ("metadata", "offsets/0", "commits/0", "sources/0/0")),
    )
    for name in names
)
FILES = (*DOCUMENTS, f"{GOVERN}/gathered/{GATHERS}/1.arrow", *SPARK)
HARMLESS = {
    (formats.NAME, "gone"),  # states have their versions; it is written again
    (formats.NAME, "of another run"),  # of the same versions
    (f"{GOVERN}/commits/1", "gone"),  # as a kill leaves a batch: it is processed again
}


def left_behind(folder: Path, rows: int) -> Settings:
    """A warehouse as a killed run leaves it while rows gather."""
    with tarfile.open(STOPPED) as found:
        found.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (folder / "in").mkdir()
    settings = load_settings(
        folder / "weir.yaml",
        {"warehouse": str(folder / WAREHOUSE), "source": {"path": str(folder / "in")}},
    )
    formats.keep(settings.location, settings.jobs)
    writer = GatheringWriter(
        settings.location, "govern", settings.maintenance.history_ms, settings.commit_interval_ms
    )
    writer.append(GATHERS, some(rows), 1)
    writer.settle(1)
    return settings


def some(count: int) -> pa.Table:
    return shaped(pa.table({"cluster": [str(n) for n in range(count)]}), TABLES[GATHERS], {})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return left_behind(tmp_path_factory.mktemp("whole"), 3)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of another run, with other ids, rows, times and states."""
    settings = left_behind(tmp_path_factory.mktemp("other"), 4)
    root, there = Path(settings.warehouse), manifest.load(settings.location)
    assert there is not None and there.id is not None
    ids = [
        there.id,
        *(checkpoints.application_id(settings.location, q) for q in ("govern", "archive")),
    ]
    for name in DOCUMENTS:
        text = (root / name).read_text("utf-8")
        for one in ids:
            text = text.replace(one, f"{one[:-36]}{uuid.uuid5(uuid.NAMESPACE_OID, one)}")
        (root / name).write_text(text, "utf-8")
    for name in SPARK:
        data = (root / name).read_bytes()
        digit = max(at for at in range(len(data)) if chr(data[at]).isdigit())
        changed = bytes([data[digit] ^ 1])
        (root / name).write_bytes(data[:digit] + changed + data[digit + 1 :])
    return root


@pytest.fixture
def settings(whole: Settings, tmp_path: Path) -> Settings:
    """A copy that a test may damage."""
    root = tmp_path / WAREHOUSE
    shutil.copytree(whole.warehouse, root)
    return whole.model_copy(update={"warehouse": str(root)})


def refused(settings: Settings) -> list[str]:
    """What a start is refused with."""
    with pytest.raises(UserError) as error:
        refuse(settings)
    return str(error.value).splitlines()


Damage = Callable[[Path, Path], Any]
DAMAGES: dict[str, Damage] = {
    "gone": lambda file, _: file.unlink(),
    "empty": lambda file, _: file.write_bytes(b""),
    "cut": lambda file, _: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "of another run": lambda file, theirs: shutil.copy(theirs, file),
    "garbage": lambda file, _: file.write_bytes(b"\xff\x00\xfe garbage\n" * 9),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_each_file_and_each_damage(settings: Settings, other: Path, name: str, damage: str) -> None:
    file = Path(settings.warehouse, name)
    DAMAGES[damage](file, other / name)
    if (name, damage) in HARMLESS:
        refuse(settings)
        return
    first, second = refused(settings)
    if (name, damage) == (f"{STORED}/commits/0", "gone"):  # the batch has a file
        assert re.fullmatch(
            r"source.path: .*/in/0.jsonl: gone, and archive has planned to read it", first
        )
        return
    assert first.startswith("warehouse: ")
    folder = str(file.parent.parent if "checkpoints" in name else file.parent)
    assert str(file) in first or folder in first, first
    assert (
        PUT_BACK in second
        or " repair --config FILE removes " in second
        or second.startswith("put ")
    ), second


SHAPES = ("null", "[]", "{}", '"text"', '{"tables": 7}')


@pytest.mark.parametrize("text", SHAPES)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_other_json_than_weir_writes(settings: Settings, name: str, text: str) -> None:
    Path(settings.warehouse, name).write_text(text, "utf-8")
    first, _ = refused(settings)
    assert name in first


def changed(document: Any, *keys: Any, to: Any) -> Any:
    """A document with another value at one place."""
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    return document


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("first",), []),
        (("last",), []),
        (("first", 0), {}),
        (("first", 0, "limits"), {}),
        (("last", 0, "name"), "another"),
        (("taken",), []),
        (("taken", 0, "batch"), "0"),
        (("taken", 0, "number"), None),
        (("taken", 0, "changed"), [["topic"]]),
        (("taken", 0, "policy_hash"), "0"),
        (("shadows",), {"a": {}}),
        (("application",), "weir-x"),
    ],
)
def test_every_part_of_the_policies_is_read_as_it_was_written(
    settings: Settings, keys: tuple[Any, ...], value: Any
) -> None:
    file = Path(settings.warehouse, GOVERN, "weir-policies.json")
    file.write_text(json.dumps(changed(json.loads(file.read_text("utf-8")), *keys, to=value)))
    first, second = refused(settings)
    assert (str(file) in first, second) == (True, PUT_BACK)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("shards", 8, "has 8 shards, and the states of govern are in 2"),
        ("partitions", 5, "has 5 partitions, and the states of govern are in 2"),
        ("id", "00000000-0000-4000-8000-000000000000", "does not belong to"),
    ],
)
def test_a_manifest_of_another_time_or_warehouse(
    settings: Settings, key: str, value: Any, words: str
) -> None:
    file = Path(settings.warehouse, manifest.NAME)
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), key: value}))
    numbers = {"shards": None, "partitions": None}
    found = refused(settings.model_copy(update=numbers))
    assert words in found[0]


def test_a_plan_of_another_run_with_its_checksum(settings: Settings) -> None:
    """As a folder that is copied from elsewhere has it."""
    plan = Path(settings.warehouse, GOVERN, "offsets", "1")
    plan.write_text(re.sub(r'"batchTimestampMs":\d', '"batchTimestampMs":9', plan.read_text()))
    spark_files.checksum_of(plan).unlink()
    assert refused(settings) == [
        f"warehouse: {plan} is of another query, or of another warehouse or time",
        PUT_BACK,
    ]


def test_a_query_of_another_name(settings: Settings) -> None:
    root = Path(settings.warehouse)
    shutil.copy(root / STORED / "weir-query.json", root / GOVERN / "weir-query.json")
    assert refused(settings)[0].endswith("is of the query archive, not of govern")


def test_doctor_names_everything_that_is_wrong(settings: Settings) -> None:
    root = Path(settings.warehouse)
    assert list(integrity.of_warehouse(settings)) == []
    (root / STORED / "weir-committed.json").write_text("{")
    gathered, state = (
        root / GOVERN / name for name in (f"gathered/{GATHERS}/1.arrow", "state/0/1/2.changelog")
    )
    gathered.unlink()
    found = list(integrity.of_warehouse(settings))
    assert [
        str(path) in text
        for path, text in zip((gathered, root / STORED / "weir-committed.json"), found, strict=True)
    ] == [True] * 2
    state.write_bytes(b"")
    assert str(state) in next(integrity.of_warehouse(settings))
    (root / manifest.NAME).write_text("{")
    (damaged,) = integrity.of_warehouse(settings)
    assert damaged.startswith(f"warehouse: {root}/{manifest.NAME} is damaged (")


def test_a_start_that_was_killed_before_it_planned_a_batch(settings: Settings) -> None:
    """Identity and policies are there, and no batch."""
    for query in (GOVERN, STORED):
        for log in ("offsets", "commits", "sources", "state", "gathered"):
            shutil.rmtree(Path(settings.warehouse, query, log), ignore_errors=True)
    for table in Path(settings.warehouse).glob("*/_delta_log"):
        shutil.rmtree(table.parent)
    refuse(settings)
    Path(settings.warehouse, manifest.NAME).unlink()
    refuse(settings)
