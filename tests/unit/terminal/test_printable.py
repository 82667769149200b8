"""Names of others cannot drive a terminal."""

from __future__ import annotations

import io
import json

import pytest

from app.terminal import log
from app.terminal.printable import printable, say, say_json
from app.terminal.rows import write_json


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
    logger = log.begin(log_format, out)
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
        (line,) = text.split("\n")[:-1]
        assert line.split(maxsplit=2)[2] == "topic a\\x1b[2J\\x9b1;31m\\u202eb is late | second"


FORGED = "2026-01-31T12:00:00.000Z ERROR   forged"


@pytest.mark.parametrize(
    "between",
    ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\u2028", "\u2029", "\0"],
)
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_others_wrote_begins_no_line_of_the_log(between: str, log_format: log.Format) -> None:
    out = io.StringIO()
    logger = log.begin(log_format, out)
    name = f"a{between}{FORGED}"
    try:
        logger.warning(f"topic {name} is late")
        logger.warning("topic %s is late", name)
        try:
            raise ValueError(name)
        except ValueError:
            logger.exception("not polled")
    finally:
        log.end()
    written = out.getvalue().splitlines()
    assert len(written) == 3
    assert not any(
        line.startswith(FORGED[:4]) and " ERROR   forged" in line[:40] for line in written
    )
    if log_format == "json":
        assert json.loads(written[0])["message"] == f"topic {name} is late"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_log_has_no_secrets_of_addresses_and_options(log_format: log.Format) -> None:
    out = io.StringIO()
    logger = log.begin(log_format, out)
    try:
        logger.warning("http://me:hush@h/metrics?token=hush does not answer (password=hush)")
    finally:
        log.end()
    assert "does not answer" in out.getvalue() and "hush" not in out.getvalue()


def test_json_for_people_and_programs_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a\x1b[2J", "\x9b1m", "\u202e", "\u2028", "\x7f", "\ud83d", "é 💥", "\n"]
    say_json({"names": names}, indent=1)
    text = capsys.readouterr().out
    assert json.loads(text) == {"names": names}
    assert all(c.isprintable() or c == "\n" for c in text) and "é 💥" in text
    out = io.StringIO()
    write_json(["name"], [[name] for name in names], out)
    assert [row["name"] for row in json.loads(out.getvalue())] == names
    assert all(c.isprintable() or c == "\n" for c in out.getvalue())


def test_what_is_said_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\nb\x07", 1)
    assert capsys.readouterr().out == "a\nb\\x07 1\n"
    for end in "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029":  # which no name has for a line of its own
        say(f"topic {end}weir: forged\n")
        shown = end.encode("unicode_escape").decode()
        assert capsys.readouterr().out == f"topic {shown}weir: forged\n\n"
