"""The site of the documentation in a real Chromium, opened from the disk."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.servers import chromium
from tests.support.servers.chromium import Chromium, loaded
from tests.support.site import build

ANSWERS = """
  [...document.querySelectorAll('.md-search-result__link')].map(link => link.getAttribute('href'))
"""


def test_the_search_answers_from_the_disk_and_nothing_else_is_loaded(tmp_path: Path) -> None:
    if chromium.executable() is None:
        pytest.skip("no Chromium: install the package chromium")
    browser = Chromium(tmp_path / "profile")
    try:
        home = build(tmp_path / "site")
        browser.open(home.as_uri(), 1280)
        browser.evaluate("document.querySelector('input[name=query]').focus()")
        browser.call("Input.insertText", text="throttle_intervals")
        deadline = time.monotonic() + 30
        while not (answers := browser.evaluate(ANSWERS)) and time.monotonic() < deadline:
            for kind in ("keyDown", "keyUp"):  # the page asks at the end of a key
                browser.call("Input.dispatchKeyEvent", type=kind, key="Shift")
            time.sleep(0.1)
        assert any("tables.html" in answer for answer in answers)
        addresses = [a for a in loaded(browser.heard()) if not a.startswith(("data:", "blob:"))]
        assert addresses and all(a.startswith(home.parent.as_uri()) for a in addresses)
        for width in (400, 1280):
            browser.open(home.as_uri(), width)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        browser.close()
