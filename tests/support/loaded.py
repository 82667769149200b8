"""What a process has loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

from tests.conftest import ROOT


def loaded(rooms: Iterable[str], apart: tuple[str, ...]) -> list[str]:
    """Modules, by the beginnings of their names, that come with others in a process of its own."""
    script = (
        f"import sys, {', '.join(rooms)}\nprint(*(m for m in sys.modules if m.startswith({apart})))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return ran.stdout.split()
