"""Recorded polls of a Pulsar cluster, taken to the core of `backlog` without a stream."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.config.pulsar_admin import PulsarAdminSettings
from tests.support.recorded_polls import Converted, convert
from tests.unit.state.backlog_trace import numbered, play

CASES = Path(__file__).resolve().parents[2] / "data" / "cases"
Json = dict[str, Any]
Row = dict[str, Any]


def polls_of(case: str) -> list[Json]:
    """The polls of a case that can be read."""
    lines = (CASES / case / "polls.ndjson").read_text().splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def judged(
    polls: Sequence[Json], folder: Path, cluster: str = "standalone", **params: Any
) -> tuple[dict[str, list[Row]], Converted]:
    """Rows by table of the core, and what the conversion said."""
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "polls.ndjson").write_text("".join(json.dumps(p) + "\n" for p in polls))
    done = convert(folder / "in", folder / "out", PulsarAdminSettings(cluster=cluster))
    assert done.path is not None
    records = [json.loads(line) for line in gzip.decompress(done.path.read_bytes()).splitlines()]
    own = [{**r, "ts_mono_ns": None} for r in records if r["event_type"] != "bad_document"]
    end_ms = max(r["ts_wall_ms"] for r in own) + 10_000
    return play([numbered(own)], params, (), end_ms), done


def columns(rows: Sequence[Row], *names: str) -> list[tuple[Any, ...]]:
    """Some columns of rows."""
    return [tuple(row[name] for name in names) for row in rows]
