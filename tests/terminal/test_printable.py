"""Names of others cannot drive a terminal."""

from __future__ import annotations

import pytest

from app.terminal.printable import printable


@pytest.mark.parametrize(("text", "shown"), [
    ("acme/orders é 💥", "acme/orders é 💥"), ("a\x1b[2J", r"a\x1b[2J"), ("a\nb", r"a\nb"),
    ("\u202egnp", r"\u202egnp"), ("\x00", r"\x00"), ("\x9b1m", r"\x9b1m"), ("\ud83d", r"\ud83d"),
])
def test_what_drives_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown
