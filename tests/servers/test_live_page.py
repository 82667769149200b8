"""The page that `serve` shows, served by the command and read in a real headless Chromium."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from app.show.live import live_pages
from app.show.live.live_server import PASSWORD
from tests.support.report_page import warehouse as warehouse
from tests.support.report_warehouse import LONG, SCRIPT
from tests.support.servers.browser import CONTRAST, DESK, PHONE
from tests.support.servers.browser import browser as browser
from tests.support.servers.chromium import Chromium, loaded
from tests.support.throttle_rows import START_MS, window, write, write_windows
from tests.support.waiting import wait_for

TOPIC = "persistent://a/b/c"


@contextmanager
def serving(warehouse: str | Path, **variables: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The command as a process of its own, and the address of its page."""
    words = ["serve", "--warehouse", str(warehouse), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "app.main", *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        found = re.search(r"http://\S+", first)
        assert found, first + process.stderr.read()
        yield found[0], process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def address(warehouse: str) -> Iterator[str]:
    with serving(warehouse) as (found, _):
        yield found


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_loads_nothing_fits_and_can_be_read(
    address: str, browser: Chromium, width: int, dark: bool
) -> None:
    browser.open(address, width, dark=dark)
    heard = browser.heard()
    assert loaded(heard) == [address]
    assert [event for event in heard if event[0] != "Network.requestWillBeSent"] == []
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate("document.querySelectorAll('script, img, [onerror]').length") == 0
    text = browser.evaluate("document.body.textContent")
    assert all(name.removeprefix("persistent://") in text for name in (SCRIPT, LONG))
    contrast = browser.evaluate(CONTRAST % ("p, li, td, th, dt, a", "color"))
    assert len(contrast) > 50 and min(contrast) >= 4.5


def test_a_keyboard_leads_from_what_is_wrong_to_why(address: str, browser: Chromium) -> None:
    browser.open(address, PHONE)

    def press(key: str, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            code = {"Tab": 9, "Enter": 13}[key]
            browser.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                text=text if kind == "keyDown" else "",
                windowsVirtualKeyCode=code,
            )

    focused = "document.activeElement.getAttribute('href') || ''"
    for _ in range(200):  # a page that loads itself meanwhile begins at its first link again
        press("Tab")
        if str(link := browser.evaluate(focused)).startswith("explain?"):
            break
    asked = parse_qs(urlsplit(link).query)
    press("Enter", "\r")
    wait_for(lambda: "/explain?" in browser.evaluate("location.href"))
    assert asked["name"][0] in browser.evaluate("document.querySelector('h1').textContent")
    # The address says what is shown: a colleague sees the same.
    there = browser.evaluate("location.href")
    told = browser.evaluate("document.querySelector('main').innerText")
    browser.open(there, PHONE)
    assert browser.evaluate("document.querySelector('main').innerText") == told


def test_it_is_at_the_page_while_a_run_begins_and_writes(tmp_path: Path, browser: Chromium) -> None:
    place = tmp_path / "warehouse"
    (place / "_weir").mkdir(parents=True)
    with serving(place) as (address, process):
        browser.open(address, DESK)
        assert "There is no data yet" in browser.evaluate("document.body.innerText")
        write_windows(str(place), [window(0, topic=TOPIC)])
        fires = {"state": "firing", "severity": "critical", "summary": "a/b/c is over its limit"}
        times = {"at_ms": START_MS, "since_ms": START_MS, "checked_ms": START_MS, "number": 1}
        labels = [("cluster", "pulsar-1"), ("topic", TOPIC)]
        write(str(place), "alerts", [{"alert": "limit", "labels": labels, **fires, **times}])
        # The page loads itself again, and the tables are looked at as often.
        wait_for(
            lambda: "a/b/c is over its limit" in browser.evaluate("document.body.innerText"),
            seconds=20 * live_pages.AGAIN_S,
        )
        begun = time.monotonic()
        for _ in range(20):
            urllib.request.urlopen(address, timeout=30).read()
        assert time.monotonic() - begun < 20
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_password_of_the_environment_is_asked_for(warehouse: str) -> None:
    with serving(warehouse, **{PASSWORD: "secret"}) as (address, _):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address, timeout=30)
        assert refused.value.code == 401
        given = base64.b64encode(b"on-call:secret").decode()
        known = urllib.request.Request(address, headers={"Authorization": f"Basic {given}"})
        with urllib.request.urlopen(known, timeout=60) as page:
            assert page.status == 200
