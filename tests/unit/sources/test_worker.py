"""What a Python worker is spared: zip files that have not changed, objects that stay."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

CODE = """
import importlib, sys, zipimport
from app.sources.worker import settle
settle()
settle()
reads = []
again = zipimport._read_directory
zipimport._read_directory = lambda archive: reads.append(archive) or again(archive)
sys.path.insert(0, sys.argv[1])
import first
importlib.invalidate_caches()
del reads[:]
importlib.invalidate_caches()
print(len([r for r in reads if r == sys.argv[1]]))
with open(sys.argv[2], 'rb') as other, open(sys.argv[1], 'wb') as archive:
    archive.write(other.read())
importlib.invalidate_caches()
import second
print(second.VALUE)
"""


def test_a_zip_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    old, new = tmp_path / "old.zip", tmp_path / "new.zip"
    with zipfile.ZipFile(old, "w") as archive:
        archive.writestr("first.py", "VALUE = 1\n")
    with zipfile.ZipFile(new, "w") as archive:
        archive.writestr("first.py", "VALUE = 1\n")
        archive.writestr("second.py", "VALUE = 2\n")
    root = str(Path(__file__).resolve().parents[3])
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(old), str(new)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.stdout.split() == ["0", "2"]


def test_objects_that_live_before_a_task_are_no_longer_collected() -> None:
    code = """
import gc
from types import SimpleNamespace
import pyspark
from app.sources.worker import settle
froze = []
freeze, gc.freeze = gc.freeze, lambda: froze.append(task) or freeze()
for task in range(1, 101):
    context = SimpleNamespace(taskAttemptId=lambda: task)
    pyspark.TaskContext = SimpleNamespace(get=lambda: context)
    settle()
    settle()
print(gc.get_freeze_count() > 1000, *froze)
"""
    root = str(Path(__file__).resolve().parents[3])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.stdout.split() == ["True", *map(str, [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64])]
