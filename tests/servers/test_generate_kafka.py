"""README's way from an empty broker to tables: generate, validate, run, as pasted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from deltalake import DeltaTable

from app.cli import main
from app.config.settings import load_settings
from app.demo.generator.scenario import load_scenario
from app.demo.generator.trace import plan_trace
from tests.support.readme import ROOT, commands
from tests.support.servers.kafka import Kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka
EVENTS = 30_000


def pasted(kafka: Kafka, topic: str) -> list[list[str]]:
    """The commands of docs/jobs.md that begin with a trace in Kafka, for this broker and topic."""
    every = list(commands(ROOT / "docs/jobs.md"))
    first = next(i for i, words in enumerate(every) if "--kafka" in words)
    return [
        [
            word.replace("localhost:9092", kafka.servers)
            .replace("fleet-events", topic)
            .replace("1000000", str(EVENTS))
            for word in words[1:]
        ]
        for words in every[first : first + 3]
    ]


def test_the_sequence_of_the_page_processes_the_generated_trace(
    kafka: Kafka,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = f"fleet-{uuid4().hex}"
    generate, validate, run = pasted(kafka, topic)
    assert [words[0] for words in (generate, validate, run)] == ["generate", "validate", "run"]
    assert main(generate) == 0
    printed = capsys.readouterr().out
    config = Path(f"{topic}.yaml")
    body = config.read_text().partition("\n")[2]
    assert "".join(f"  {line}\n" for line in body.splitlines()) in printed
    assert main(validate) == 0, capsys.readouterr().err
    trace = plan_trace(load_scenario("demo"), EVENTS, 7)
    assert load_settings(config).policy_dicts() == trace.policies
    assert main([*run, "--available-now"]) == 0, capsys.readouterr().err

    planted: Counter[str] = Counter()
    for part in trace.slices():
        planted.update(part.planted)
    quarantine = DeltaTable("weir-warehouse/quarantine").to_pyarrow_table().to_pylist()
    late = {
        (r["source_partition"], r["source_offset"])
        for r in quarantine
        if r["reason_code"] == "TOO_LATE"
    }
    assert len(late) <= planted["TOO_LATE"]  # not those of a partition that was read last
    assert DeltaTable("weir-warehouse/throttle_events").to_pyarrow_dataset().count_rows() > 0
    # A second trace takes the place of the first, but of no file that somebody else has written.
    assert main(generate) == 0
    config.write_text("warehouse: mine\n")
    assert main(generate) == 2
    assert config.read_text() == "warehouse: mine\n"
