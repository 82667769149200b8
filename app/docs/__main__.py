"""`python -m app.docs` writes the generated pages of `docs/`."""

from __future__ import annotations

from app.config.shipped import ROOT
from app.docs.pages import main

main(ROOT / "docs")
