"""`python -m tests.pages` writes the generated pages of `docs/` and the rules for Prometheus."""

from __future__ import annotations

from app.config.shipped import ROOT
from tests.pages.pages import main

main(ROOT / "docs")
