"""What tests share of readme."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from app.setup.launch.line import read

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("app/jobs/*/runbooks/*.md")),
]
PROGRAMS = ("./spark-submit.sh", "weir")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)


def commands(page: Path) -> Iterator[list[str]]:
    """Every command of a page as words, without the options that go to spark-submit."""
    for block in blocks(page, "sh"):
        # Of shlex a comment ends behind the end of its line.
        text = re.sub(r"(^|\s)#[^\n\"']*$", "", block, flags=re.M)
        lexer = shlex.shlex(text, posix=True, punctuation_chars="\n")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
        line: list[str] = []
        for word in [*lexer, "\n"]:
            if set(word) != {"\n"}:
                line.append(word)
            elif line:
                program, *words = line
                yield [program, *(read(words).words if program in PROGRAMS else words)]
                line = []
