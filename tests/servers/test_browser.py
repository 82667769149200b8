"""The page of a report in a real headless Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.read.relations import Warehouse
from app.whatif.effect.compare import compared
from app.whatif.effect.effect_page import html_of
from app.whatif.effect.effect_text import About
from app.whatif.replay.event_span import WHOLE
from tests.support import report_warehouse as reported
from tests.support.report_warehouse import CLOSING, IMAGE, LONG, SCRIPT, USER
from tests.support.servers.browser import CONTRAST, DESK, PHONE
from tests.support.servers.browser import browser as browser
from tests.support.servers.chromium import Chromium, loaded


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_loaded_and_the_console_stays_silent(
    page: Path, browser: Chromium, width: int, dark: bool
) -> None:
    browser.open(page.as_uri(), width, dark=dark)
    heard = browser.heard()
    assert loaded(heard) == [page.as_uri()]
    assert [event for event in heard if event[0] != "Network.requestWillBeSent"] == []


def test_names_are_shown_as_text_and_nothing_runs(page: Path, browser: Chromium) -> None:
    browser.open(page.as_uri(), DESK)
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    text = browser.evaluate("document.body.innerText")
    for name in (SCRIPT, IMAGE, CLOSING):
        assert name.removeprefix("persistent://") in text
    assert USER in text and "<i>reason</i>" in browser.evaluate("document.body.textContent")
    assert browser.evaluate("document.querySelectorAll('script, img, [onerror]').length") == 0
    assert browser.evaluate("document.querySelectorAll('section').length") == 12
    # What is stopped by the policy of the page would have been reported.
    assert [name for name, _ in browser.heard()] == ["Network.requestWillBeSent"]


@pytest.mark.parametrize("width", [320, PHONE, DESK])
def test_the_page_never_scrolls_sideways(page: Path, browser: Chromium, width: int) -> None:
    browser.open(page.as_uri(), width)
    assert LONG.removeprefix("persistent://") in browser.evaluate("document.body.textContent")
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    # Text of tables and charts is whole: tables scroll on a desk and are stacked on a phone.
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    cut = browser.evaluate("""
        [...document.querySelectorAll('td, figure svg text, figcaption, summary')]
          .filter(e => e.getClientRects().length)
          .map(e => [e.textContent, e.getBoundingClientRect()])
          .filter(([_, r]) => r.left < 0 || r.right > innerWidth).map(([text, _]) => text)
    """)
    assert cut == [] or width == DESK
    # Wide tables scroll by themselves.
    assert browser.evaluate(
        "[...document.querySelectorAll('.scroll')].every("
        "e => e.getBoundingClientRect().right <= innerWidth)"
    )


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_each_width_shows_its_own_charts(page: Path, browser: Chromium, width: int) -> None:
    browser.open(page.as_uri(), width)
    seen = browser.evaluate(
        "[...document.querySelectorAll('figure svg')].filter(e => e.getClientRects().length)"
        ".map(e => e.getBoundingClientRect()).map(r => [r.width, r.right])"
    )
    assert len(seen) == browser.evaluate("document.querySelectorAll('figure').length") == 14
    assert all(60 < shown <= width and right <= width for shown, right in seen)


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_charts_stand_out_in_light_and_dark(
    page: Path, browser: Chromium, dark: bool
) -> None:
    browser.open(page.as_uri(), DESK, dark=dark)
    paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    text = browser.evaluate(CONTRAST % ("p, li, td, th, dt, a, figcaption", "color"))
    assert len(text) > 100 and min(text) >= 4.5
    axes = browser.evaluate(CONTRAST % (".role-axis-label text, .role-legend-label text", "fill"))
    assert len(axes) > 50 and min(axes) >= 4.5
    marks = browser.evaluate(CONTRAST % ('.mark-rect.role-mark path[fill*="--c"]', "fill"))
    assert len(marks) > 10 and min(marks) >= 3
    lines = browser.evaluate(CONTRAST % (".mark-line.role-mark path", "stroke"))
    assert len(lines) > 3 and min(lines) >= 3


def test_on_paper_it_is_light_and_whole(page: Path, browser: Chromium) -> None:
    browser.open(page.as_uri(), DESK, dark=True)
    assert browser.printed()[:5] == b"%PDF-"
    browser.call(
        "Emulation.setEmulatedMedia",
        media="print",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    try:
        assert browser.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert browser.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert (
            browser.evaluate("getComputedStyle(document.querySelector('.scroll')).overflowX")
            == "visible"
        )
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")


def test_labels_keep_the_head_and_the_end_of_a_name(page: Path, browser: Chromium) -> None:
    browser.open(page.as_uri(), PHONE)
    labels = browser.evaluate(
        "[...document.querySelectorAll('#culprits .narrow .role-axis-label text')]"
        ".map(e => e.textContent).filter(text => text.includes('…'))"
    )
    assert any(label.startswith("acme/unb") and label.endswith("unbroken") for label in labels)


def test_what_is_not_there_would_be_heard(tmp_path: Path, browser: Chromium) -> None:
    """The listening itself: a page that loads, runs and fails is noticed."""
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='gone.png'><script>console.log('x'); missing()</script>")
    browser.open(bad.as_uri(), DESK)
    heard = browser.heard()
    assert loaded(heard) == [bad.as_uri(), (tmp_path / "gone.png").as_uri()]
    assert {"Runtime.consoleAPICalled", "Runtime.exceptionThrown"} <= {name for name, _ in heard}


def test_hostile_names_are_text_in_the_page_of_an_effect(tmp_path: Path, browser: Chromium) -> None:
    hostile, empty = tmp_path / "hostile", tmp_path / "empty"
    reported.fill(str(hostile))
    (empty / "_weir").mkdir(parents=True)
    found = compared(Warehouse(str(empty)), Warehouse(str(hostile)), 20, 60_000)
    out = tmp_path / "page.html"
    about = About(reported.SCRIPT, reported.IMAGE, WHOLE, ["rate_limits"], [], [])
    out.write_text(html_of(about, found), "utf-8")
    for width in (390, 1200):
        browser.open(out.as_uri(), width)
        heard = browser.heard()
        assert loaded(heard) == [out.as_uri()]
        assert [one for one in heard if one[0] != "Network.requestWillBeSent"] == []
        text = browser.evaluate("document.body.innerText")
        for name in (*reported.NAMES, reported.USER):
            assert name.removeprefix("persistent://")[:250] in text
        assert browser.evaluate("document.querySelectorAll('script, img').length") == 0
        assert browser.evaluate("document.documentElement.scrollWidth") == width
