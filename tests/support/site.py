"""The site of the documentation, as `make site` builds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.readme import ROOT


def build(folder: Path) -> Path:
    """Build the site into a folder; its home page."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "index.html"
