"""The recording that the demo plays is a trace of the generator: the same files, byte for byte."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from app.config.settings import load_settings
from app.demo import recording
from app.demo.recording import Recording
from benchmarks.generator import record
from benchmarks.generator.generated_configuration import document
from benchmarks.generator.trace import ArrivalSlice, Trace

ANEW = "python -m benchmarks record makes it anew"
File = tuple[str, int, str]


def of_generator(trace: Trace) -> list[File]:
    """Name, time and hash of each file of events."""
    return [(p.name, p.wall_ms, sha256(p.data.tobytes()).hexdigest()) for p in trace.slices()]


def of_files(files: list[tuple[str, int, bytes]]) -> list[File]:
    return [(name, ms, sha256(content).hexdigest()) for name, ms, content in files]


def test_the_recording_is_what_the_generator_makes_of_its_seed() -> None:
    trace, there = record.planned(), record.FOLDER
    files = list(Recording("demo").files())
    assert of_files(files) == of_generator(trace), ANEW
    policies = yaml.safe_load((there / "policies.yaml").read_text("utf-8"))
    assert policies == trace.policies, ANEW
    configuration = yaml.safe_load((there / "weir.yaml").read_text("utf-8"))
    assert configuration == document(trace, "warehouse", "events"), ANEW
    events = sum(content.count(b"\n") for _, _, content in files)
    assert Recording("demo").says == record.says(trace, events), ANEW


def test_a_recording_of_a_trace_gives_its_files_and_its_configuration(
    small: Trace, slices: list[ArrivalSlice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert any(part.malformed.any() for part in slices)
    record.record(tmp_path / "recordings" / "small", small)
    monkeypatch.setattr(recording, "SHIPPED", tmp_path / "recordings")
    assert of_files(list(Recording("small").files())) == of_generator(small)
    out = tmp_path / "out"
    out.mkdir()
    settings = load_settings(Recording("small").copy_to(out))
    assert settings.policy_dicts() == small.policies
    written = sorted((out / "events").iterdir())
    assert [path.read_bytes() for path in written] == [part.data.tobytes() for part in slices]
    assert [path.stat().st_mtime_ns // 10**6 for path in written] == [p.wall_ms for p in slices]
