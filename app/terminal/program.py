"""The name of the program in messages: how the user starts it."""

from __future__ import annotations

from pathlib import Path

INSTALLED = Path(__file__).resolve().parents[2] / "__init__.py"
"""An installation is a package; a checkout is none."""

PROGRAM = "weir" if INSTALLED.exists() else "./spark-submit.sh"
