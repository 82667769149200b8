"""What a run says of a source that has no records, or does not answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.run.progress import Figures
from app.run.source_watch import SourceWatch

MakeSettings = Callable[..., Settings]


class Run:
    """A watch over a source, at times that a test chooses."""

    def __init__(self, settings: Settings, *, silence: bool = True) -> None:
        self.now_s, self.read = 0.0, 0
        self.said: list[str] = []
        self.watch = SourceWatch(
            settings,
            self.said.append,
            lambda text: self.said.append(f"! {text}"),
            silence=silence,
            clock=lambda: self.now_s,
        )

    def until(self, end_s: float, events: int = 0) -> list[str]:
        """Look every second until `end_s`, each with more events; what was said meanwhile."""
        self.said.clear()
        while self.now_s < end_s:
            self.now_s += 1
            self.read += events
            self.watch.look([Figures("archive", events=self.read), Figures("govern")])
            for question in threading.enumerate():
                if question.name == "source-watch":
                    question.join(20)
            self.watch.look([Figures("archive", events=self.read), Figures("govern")])
        return list(self.said)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is read as a source."""
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def of(make_settings: MakeSettings, folder: Path) -> Settings:
    """Settings that read the folder."""
    return make_settings(source={"format": "files", "path": str(folder)})


def test_a_source_with_records_is_not_spoken_of(make_settings: MakeSettings, folder: Path) -> None:
    run = Run(of(make_settings, folder))
    assert run.until(300, events=5) == []


def test_a_silent_source_is_reported_once_and_when_it_is_back(
    make_settings: MakeSettings, folder: Path
) -> None:
    run = Run(of(make_settings, folder))
    assert run.until(10, events=5) == []
    assert run.until(69) == []
    assert run.until(500) == ["source: no records for 60 s; the run waits for them"]
    assert run.until(510, events=5) == ["source: records again after 491 s without records"]
    assert run.until(600) == ["source: no records for 60 s; the run waits for them"]


def test_a_source_that_is_gone_is_reported_with_the_reason_and_when_it_is_back(
    make_settings: MakeSettings, folder: Path
) -> None:
    run = Run(of(make_settings, folder))
    run.until(10, events=5)
    folder.rename(folder.with_name("elsewhere"))
    assert run.until(200) == [
        f"! source: source.path: {folder} does not exist; "
        "the run waits and continues when it answers"
    ]
    folder.with_name("elsewhere").rename(folder)
    (said,) = run.until(210)
    assert said.startswith("source: answers again after 17") or said.endswith("after 180 s")
    assert run.until(255) == []
    (said,) = run.until(300)
    assert said.startswith("source: no records for 2")  # since the last one, not since it is back
    assert run.until(310, events=1) == ["source: records again after 291 s without records"]


def test_a_long_batch_is_no_silence(make_settings: MakeSettings, folder: Path) -> None:
    run = Run(of(make_settings, folder))
    for run.now_s in range(1, 300):
        run.watch.look([Figures("govern")], busy=True)
    assert run.said == []
    assert run.until(400) == ["source: no records for 359 s; the run waits for them"]


def test_records_are_an_answer_too(make_settings: MakeSettings, folder: Path) -> None:
    run = Run(of(make_settings, folder))
    folder.rename(folder.with_name("elsewhere"))
    assert len(run.until(60)) == 1
    (said,) = run.until(61, events=1)
    assert said.startswith("source: records again after 4")


def test_a_run_to_an_end_waits_for_no_records(make_settings: MakeSettings, folder: Path) -> None:
    assert Run(of(make_settings, folder), silence=False).until(500) == []


def test_a_broker_that_refuses_connections_is_named(make_settings: MakeSettings) -> None:
    before = threading.active_count()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{free.getsockname()[1]}"
        options = {"kafka.bootstrap.servers": servers, "subscribe": "t"}
        run = Run(make_settings(source={"format": "kafka", "options": options}))
        (said,) = run.until(40)
    assert said.startswith(f"! source: Kafka does not answer at {servers}: ")
    assert said.endswith("; the run waits and continues when it answers")
    assert threading.active_count() < before + 20
