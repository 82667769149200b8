"""The job of docs/adding-a-job.md: the page has its code, and three runners give its rows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = Path(__file__).resolve().parent / "message_counts"
ROOM = Path(__file__).resolve().parent / "room"
FILES = [path for path in sorted(SOURCES.glob("*.py")) if path.read_text("utf-8")]
SHOWN = [path for path in sorted(ROOM.glob("*.py")) if path.read_text("utf-8")]
RULES = sorted(ROOM.glob("alerts/*.yaml"))
PAGE = (ROOT / "docs" / "adding-a-job.md").read_text("utf-8")
WINDOW_MS = 10_000
IMPORT = "from state.message_counts.declaration import DECLARATION as MESSAGE_COUNTS\n"


@pytest.mark.parametrize("file", [*FILES, *SHOWN, *RULES], ids=lambda path: path.name)
def test_the_page_has_the_code_of_the_job(file: Path) -> None:
    language = {".py": "python", ".yaml": "yaml"}[file.suffix]
    assert f"```{language}\n{file.read_text('utf-8')}```" in PAGE


def test_a_job_takes_less_than_200_lines() -> None:
    assert sum(len(path.read_text("utf-8").splitlines()) for path in FILES) < 200


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources with the job added as the page describes it."""
    place = tmp_path_factory.mktemp("toy") / "sources"
    place.mkdir()
    for name in ("udfs", "conf", "configs"):
        (place / name).symlink_to(ROOT / name)
    (place / "tests").mkdir()
    for name in ("tests/__init__.py", "tests/pages"):
        (place / name).symlink_to(ROOT / name)
    for name in ("app", "state"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(SOURCES, place / "state" / "message_counts")
    shutil.copytree(ROOM, place / "app" / "jobs" / "message_counts")
    registry = place / "state" / "jobs.py"
    text = registry.read_text("utf-8")
    before = "from state.producer_ids.declaration"
    assert IMPORT in PAGE and before in text and "CLIENT_QUOTAS)" in text
    text = text.replace(before, IMPORT + before)
    registry.write_text(text.replace("CLIENT_QUOTAS)", "CLIENT_QUOTAS, MESSAGE_COUNTS)"), "utf-8")
    return place


@pytest.fixture(scope="module")
def found(tree: Path) -> dict[str, Any]:
    """What the runners, the commands and the pages give."""
    folder = tree.parent
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "runners.py"), str(folder)],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tree)},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    answer: dict[str, Any] = json.loads((folder / "found.json").read_text("utf-8"))
    return answer


def test_core_stream_and_batch_give_the_same_rows(found: dict[str, Any]) -> None:
    rows = found["rows"]
    assert rows["core"]
    assert rows["stream"] == rows["core"]
    assert rows["replay"] == rows["core"]
    assert rows["slices"] == rows["core"]


def test_the_rows_count_the_records(found: dict[str, Any]) -> None:
    messages: Counter[tuple[str, str, int]] = Counter()
    size: Counter[tuple[str, str, int]] = Counter()
    for record in found["added"]:
        start = record["ts_wall_ms"] // WINDOW_MS * WINDOW_MS
        key = record["cluster"], record["topic"], start
        messages[key] += record["num_messages"] or 1
        size[key] += record["entry_bytes"]
    expected = [[*key, messages[key], size[key]] for key in messages]
    assert len(expected) == 12 * 6
    assert sorted(found["counts"]) == sorted(expected)


def test_a_declared_job_has_a_section_tables_and_pages(found: dict[str, Any]) -> None:
    """Nothing else than the registry names it."""
    declared = found["declared"]
    assert declared["switches"] == {"count": "messages"}
    assert declared["jobs"][-1] == "message_counts"
    assert "## topic_message_counts" in declared["pages"]["tables"]
    assert "entry_cache, message_counts |" in declared["pages"]["events"]
    assert (
        "message_counts.count: 'bytes' is not supported (allowed: messages, entries)"
        in declared["refused"]
    )


def test_its_room_answers_counts_and_alerts(found: dict[str, Any]) -> None:
    totals: Counter[tuple[str, str]] = Counter()
    for cluster, topic, _, messages, _ in found["counts"]:
        totals[cluster, topic] += messages
    answers, pages = found["answers"], found["declared"]["pages"]
    answer = json.loads(answers["query"])
    assert {(row["cluster"], row["topic"]): row["messages"] for row in answer} == totals
    for cluster in ("c0", "c1"):
        whole = sum(n for (name, _), n in totals.items() if name == cluster)
        assert f'weir_messages_total{{cluster="{cluster}"}} {whole:.1f}' in answers["metrics"]
    assert "topic-flood" in {rule["name"] for rule in json.loads(answers["rules"])}
    assert "## topic_messages (view)" in pages["tables"]
    assert "### most-messages" in pages["queries"]
    assert "weir_messages_total" in pages["metrics"]


def test_its_room_audits_reports_and_explains(found: dict[str, Any]) -> None:
    totals: Counter[str] = Counter()
    for _, topic, _, messages, _ in found["counts"]:
        totals[topic] += messages
    topic, most = min(totals.items(), key=lambda item: (-item[1], item[0]))
    report, told, audited = (
        json.loads(found["answers"][name]) for name in ("report", "explain", "quality")
    )
    assert (
        f"Topic {topic.removeprefix('persistent://')} had most messages: {most:,}."
        in (report["sections"]["what-happened"]["sentences"])
    )
    (grid,) = report["sections"]["message-counts"]["parts"]
    assert sum(row["messages"] for row in grid["rows"]) == sum(totals.values())
    assert any(f"arrived in {topic}" in sentence["text"] for sentence in told["sentences"])
    assert "a window is written at its end" in {row["expectation"] for row in audited}
    assert all(row["success"] for row in audited)
