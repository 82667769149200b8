"""The configurations of `examples`, which pages show: `python -m tests.support.examples` writes
them into the pages that link them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SHOWN = re.compile(
    r"\[examples/([\w-]+\.yaml)\]\([^)\n]+\)[^\n]*:\n\n```yaml\n(.*?)^```", re.M | re.S
)
"""A link to an example with the text below it."""


def current(page: Path) -> str:
    """The text of a page with its examples as they are, without their first line, a comment."""

    def replace(match: re.Match[str]) -> str:
        _, _, text = (ROOT / "examples" / match[1]).read_text("utf-8").partition("\n")
        start, end = (at - match.start() for at in match.span(2))
        return match[0][:start] + text + match[0][end:]

    return SHOWN.sub(replace, page.read_text("utf-8"))


if __name__ == "__main__":
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        page.write_text(current(page), "utf-8")
