"""Sentences from templates and rows."""

from __future__ import annotations

from typing import Any

import pytest

from app.terminal.templates import FORMATS, checked, columns, sentence, text_of, written

ROW: dict[str, Any] = {
    "topic": "persistent://a/b/c",
    "who": "user x",
    "n": 1,
    "many": 1234,
    "share": 0.256,
    "left_ms": 500_500,
    "at_ms": 1_767_621_600_000,
    "bytes": 4_200_000,
    "names": ["a", "b", "c", "d"],
    "hostile": "{n} [x] {0.__class__}",
    "gone": None,
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{who:capital} of {topic:short}", "User x of a/b/c"),
        ("{n:n batch}, {many:n batch}, {n:n time}", "1 batch, 1,234 batches, once"),
        ("{share:percent} in {left_ms:about}, {left_ms:duration}", "26 % in 8 min, 8 min 20 s"),
        ("{at_ms:clock}, {bytes:size}, {many:number}", "14:00:00, 4.2 MB, 1,234"),
        ("{names:names topic}", "topics a, b, c and 1 other"),
        ("{many:,} {share:.1f} {names}", "1,234 0.3 a, b, c, d"),
        ("a{gone}b{gone:,}c", "abc"),
        ("over[ its limit of {gone:size}][ {n}] now[ of {n} and {gone}]", "over 1 now"),
        ("{hostile}[{hostile}]", "{n} [x] {0.__class__}" * 2),
        ("{{n}} []", "{n} "),
    ],
)
def test_a_sentence_has_the_values_of_its_row(template: str, expected: str) -> None:
    assert sentence(checked(template), ROW) == expected


def test_brackets_of_a_summary_are_text() -> None:
    assert written("[{n}] {who}", ROW) == "[1] user x"


@pytest.mark.parametrize("template", ["{n!r}", "{0}", "{a[0]}", "{a.b}", "{n:pct}", "{n:n}x{", "}"])
def test_what_can_never_be_written_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"allowed|'[{}]'"):
        checked(template)


def test_every_format_is_documented_and_none_hides_one_of_python() -> None:
    assert columns("{a} {b:size} [{c}]") == ["a", "b", "c"]
    for name in FORMATS:
        for value in (1, 1.0, ""):
            with pytest.raises(ValueError, match=r"[Ff]ormat"):
                format(value, name)
    assert [text_of(value) for value in (None, 2.0, [1, 2], "x")] == ["", "2", "1, 2", "x"]
