"""Names of others cannot drive a terminal."""

from __future__ import annotations

import io
import json

import pytest

from app.terminal import log
from app.terminal.printable import printable, say


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("acme/orders é 💥", "acme/orders é 💥"),
        ("a\x1b[2J", r"a\x1b[2J"),
        ("a\nb", r"a\nb"),
        ("\u202egnp", r"\u202egnp"),
        ("\x00", r"\x00"),
        ("\x9b1m", r"\x9b1m"),
        ("\ud83d", r"\ud83d"),
    ],
)
def test_what_drives_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_names_in_the_log_move_no_cursor(log_format: log.Format) -> None:
    out = io.StringIO()
    logger, _ = log.begin(log_format, out)
    try:
        logger.warning("topic a\x1b[2J\x9b1;31m\u202eb is late\nsecond")
    finally:
        log.end()
    text = out.getvalue()
    assert all(c.isprintable() or c == "\n" for c in text)
    if log_format == "json":
        (line,) = text.splitlines()
        assert json.loads(line)["message"] == "topic a\x1b[2J\x9b1;31m\u202eb is late\nsecond"
    else:
        assert [line.split(maxsplit=2)[2] for line in text.splitlines()] == [
            "topic a\\x1b[2J\\x9b1;31m\\u202eb is late",
            "second",
        ]


def test_what_is_said_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\nb\x07", 1)
    assert capsys.readouterr().out == "a\nb\\x07 1\n"
