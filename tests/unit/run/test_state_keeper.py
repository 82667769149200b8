"""States that a run keeps: for which sources, their place in the source, and how many stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from app.config.settings import Settings
from app.errors import UserError
from app.read.relations import Warehouse
from app.run import state_keeper
from app.tables import manifest
from app.tables.state_files import SourcePosition
from app.whatif.replay.refused import LeftOut

MakeSettings = Callable[..., Settings]
EVERY_HOUR = {"interval_ms": "1h"}
KAFKA = {"format": "kafka", "options": {"kafka.bootstrap.servers": "x:1", "subscribe": "a"}}


def checkpoint(settings: Settings, name: str, *lines: object) -> None:
    """A file of a query's checkpoint, as Spark writes it."""
    path = Path(settings.warehouse) / "_weir" / "checkpoints" / "govern" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", *map(json.dumps, lines)]))


def test_only_sources_with_a_place_are_accepted(make_settings: MakeSettings) -> None:
    demo = {"format": "demo"}
    state_keeper.refuse(make_settings(source=demo))
    state_keeper.refuse(make_settings(source=KAFKA, saved_states=EVERY_HOUR))
    with pytest.raises(UserError, match=r"saved_states.interval_ms: states of source.format demo"):
        state_keeper.refuse(make_settings(source=demo, saved_states=EVERY_HOUR))
    with pytest.raises(UserError, match=r"kept in a warehouse on this machine only"):
        state_keeper.refuse(
            make_settings(source=KAFKA, saved_states=EVERY_HOUR, warehouse="s3://bucket/weir")
        )


def test_the_place_in_kafka_is_the_end_of_each_partition(make_settings: MakeSettings) -> None:
    settings = make_settings(source=KAFKA, saved_states=EVERY_HOUR)
    checkpoint(settings, "offsets/7", {"batchWatermarkMs": 0}, {"a": {"0": 12, "1": 5}})
    place = state_keeper.position(settings.location, settings.feed, "govern", 7)
    assert place == SourcePosition({"0": 12, "1": 5})
    two = {**KAFKA, "options": {**KAFKA["options"], "subscribe": "a,b"}}  # type: ignore[dict-item]
    place = state_keeper.position(settings.location, make_settings(source=two).feed, "govern", 7)
    assert place == SourcePosition({"a-0": 12, "a-1": 5})


def test_the_place_in_files_are_those_up_to_the_batch(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    settings = make_settings(source={"format": "files", "path": str(folder)})

    def entry(name: str) -> dict[str, object]:
        return {"path": f"file://{folder}/{name}", "timestamp": 1, "batchId": 0}

    checkpoint(settings, "sources/0/9.compact", entry("a.jsonl"), entry("sub/b%20c.jsonl"))
    checkpoint(settings, "sources/0/8", entry("a.jsonl"))
    checkpoint(settings, "sources/0/10", entry("d.jsonl"))
    checkpoint(settings, "sources/0/11", entry("e.jsonl"))
    checkpoint(settings, "offsets/3", {"batchWatermarkMs": 0}, {"logOffset": 10})
    place = state_keeper.position(settings.location, settings.feed, "govern", 3)
    assert place == SourcePosition(files=["a.jsonl", "d.jsonl", "sub/b c.jsonl"])


def test_a_replay_leaves_out_what_the_states_have(make_settings: MakeSettings) -> None:
    rows = pa.record_batch(
        {
            "source_partition": ["0", "0", "1", "f"],
            "source_offset": pa.array([11, 12, 99, 3]),
        }
    )
    applied = {"chunks": SourcePosition({"0": 12}), "backlog": SourcePosition(files=["f"])}
    left_out = LeftOut(
        Warehouse.of(make_settings().location), ("chunks", "backlog", "rate_limits"), 0, 1, applied
    )
    found = {job: missing.tolist() for job, missing in left_out.rows(rows).items()}
    assert found == {"chunks": [True, False, False, False], "backlog": [False] * 3 + [True]}


def test_the_newest_of_each_query_stay(make_settings: MakeSettings) -> None:
    settings = make_settings()
    manifest.claim(settings.location, 2, settings.shards)

    def keep(query: str, batch: int) -> list[str]:
        return manifest.keep_states(
            settings.location,
            manifest.SavedStates(f"{query}-{batch}", query, ["chunks"], batch, 1000 * batch, batch),
            2,
        )

    assert [keep("a", 1), keep("b", 1), keep("a", 2), keep("a", 2)] == [[], [], [], []]
    assert keep("a", 5) == ["a-1"]
    found = manifest.load(settings.location)
    assert found is not None and found.states is not None
    assert [one.file for one in found.states] == ["b-1", "a-2", "a-5"]
