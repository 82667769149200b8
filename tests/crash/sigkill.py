"""What tests share of sigkill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def killed(config: Path, query: str, point: str, number: int) -> subprocess.CompletedProcess[str]:
    """A run that was to be killed, ended."""
    module = "tests.crash.killed_run"
    command = [sys.executable, "-m", module, str(config), query, point, str(number)]
    return subprocess.run(command, timeout=300, check=False, capture_output=True, text=True)
