"""The pages that `serve` shows: every link is answered, names stay text, and pages follow tables."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from threading import Barrier
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from app.cli import main
from app.config.settings import Settings, load_settings
from app.errors import NotNow
from app.show.live import live_pages
from app.show.live.live_pages import LivePages
from app.show.live.live_server import PASSWORD, application, guarded, serve
from app.show.report.curves import curve
from app.show.report.report_reader import ReportSpan
from tests.support.hostile import HOSTILE_NAMES
from tests.support.ready_questions import lag, put
from tests.support.report_page import warehouse as warehouse
from tests.support.throttle_rows import START_MS, event, window, write, write_windows

HOUR_MS = 3_600_000


class Elements(HTMLParser):
    """The links and the elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        target = dict(attrs).get("href")
        if tag == "a" and target and not target.startswith(("#", "http")):
            self.links.append(target)


class Browser:
    """Asks an application for pages."""

    def __init__(self, settings: Settings, password: str = "") -> None:
        self.pages = LivePages(settings)
        self._app = guarded(application(self.pages), password)
        self.status = ""
        self.headers: dict[str, str] = {}

    def get(self, address: str = "/", method: str = "GET", **fields: str) -> str:
        def begin(status: str, headers: list[tuple[str, str]], *_: Any) -> Callable[..., object]:
            self.status, self.headers = status, dict(headers)
            return print

        parts = urlsplit(address)
        path = parts.path if parts.path.startswith("/") else f"/{parts.path}"
        asked = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": parts.query}
        return b"".join(self._app({**asked, **fields}, begin)).decode()


def of(folder: str | Path) -> Settings:
    return load_settings(None, {"warehouse": str(folder)})


def alert(state: str, at_ms: int, number: int, **more: Any) -> dict[str, Any]:
    return {
        "alert": "publish-limit",
        "labels": [("cluster", "pulsar-1"), ("limiter", "topic"), ("entity", "persistent://a/b/c")],
        "state": state,
        "at_ms": START_MS + at_ms,
        "since_ms": START_MS + at_ms - 1,
        "severity": "warning",
        "summary": "a/b/c is over its limit",
        "number": number,
        "checked_ms": START_MS + at_ms,
        "runbook": "app/jobs/rate_limits/runbooks/publish-limit.md",
        **more,
    }


def test_every_link_of_a_page_is_answered(warehouse: str) -> None:
    browser = Browser(of(warehouse))
    links = Elements(browser.get()).links
    kinds = {urlsplit(link).path for link in links}
    assert kinds == {"/", "explain", "query"} and len(links) > 20
    for link in dict.fromkeys(links):
        text = browser.get(link)
        assert browser.status == "200 OK", (link, text)
        assert link.startswith("/?") or "/" in Elements(text).links


def test_what_a_link_asks_is_what_the_commands_answer(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    browser = Browser(of(warehouse))
    capsys.readouterr()
    for link in dict.fromkeys(Elements(browser.get()).links):
        parts = urlsplit(link)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path != "explain":
            continue
        names = [asked[name] for name in ("kind", "name", "second") if name in asked]
        options = [f"--{n}={asked[n]}" for n in ("cluster", "at") if n in asked]
        assert main(["explain", *names, *options, "--json", "--warehouse", warehouse]) == 0
        told = json.loads(capsys.readouterr().out)["sentences"]
        text = unescape(browser.get(link)).replace("\N{NO-BREAK SPACE}", " ")
        assert all(each["text"] in text for each in told), link


def test_an_alert_that_fires_since_yesterday_is_there_with_its_history(tmp_warehouse: str) -> None:
    put(
        tmp_warehouse,
        {
            "alerts": [
                alert("firing", 0, 1),
                alert("resolved", HOUR_MS, 2),
                alert("firing", 5 * HOUR_MS, 3),
            ]
        },
    )
    write_windows(tmp_warehouse, [window(20 * 60, topic="persistent://a/b/c")])
    text = Browser(of(tmp_warehouse)).get()
    assert "1 alert fires" in text and "a/b/c is over its limit" in text
    (link,) = [each for each in Elements(text).links if "at=" in each]
    asked = parse_qs(urlsplit(link).query)
    assert asked["kind"] == ["topic"] and asked["name"] == ["persistent://a/b/c"]
    assert asked["at"] == [str(START_MS + 5 * HOUR_MS - 1)]
    hour, day = (part.partition("</svg>")[0] for part in text.split('<svg class="strip"')[1:])
    assert hour.count("<rect") == 1 and 'x="0' in hour and 'width="100.0"' in hour
    assert day.count("<rect") == 2


def test_an_alert_that_fires_has_the_curve_of_its_value(tmp_warehouse: str) -> None:
    """By the rows of its rule; where the rule is gone or has other labels there is none."""
    labels = [("cluster", "east"), ("group", "g"), ("topic", "orders")]
    ahead = {"alert": "group-ahead", "labels": labels, "summary": "g is ahead"}
    put(
        tmp_warehouse,
        {
            "group_lag": [
                lag("g", minute * 60_000, -by, state="ahead") for minute, by in enumerate((3, 5, 4))
            ],
            "alerts": [
                alert("firing", 0, 1, **ahead),
                alert("firing", 0, 2, **{**ahead, "labels": [("cluster", "east"), ("team", "x")]}),
                alert("firing", 0, 3, alert="of another time"),
            ],
        },
    )
    text = Browser(of(tmp_warehouse)).get()
    assert "3 alerts fire" in text and "<script" not in text
    (shown,) = text.split('<svg class="curve"')[1:]
    path, said = re.findall(r'<path d="(.*?)"/></svg><small>(.*?)</small>', shown)[0]
    assert said == "lowest 3, highest 5, latest 4"
    points = re.fullmatch(r"M([\d.]+) 19.0H([\d.]+)V1.0H([\d.]+)V10.0H100.0", path)
    assert points is not None
    assert [float(x) for x in points.groups()] == sorted(float(x) for x in points.groups())


def test_a_curve_has_a_gap_where_nothing_held() -> None:
    rows = [
        {"start_ms": start, "end_ms": start + 10, "value": value}
        for start, value in ((100, 2.0), (110, 4.0), (150, 4.0))
    ]
    assert curve(rows, ReportSpan(100, 200)) == {
        "path": "M0.0 19.0H10.0V1.0H20.0M50.0 1.0H60.0",
        "text": "lowest 2, highest 4, latest 4",
    }


def test_names_stay_text_and_their_links_lead_to_them(tmp_path: Path) -> None:
    topics = [f"persistent://acme/orders/{name}" for name in HOSTILE_NAMES]
    place = str(tmp_path / "warehouse")
    rows = [
        {**alert("firing", 0, 1), "labels": [("cluster", "pulsar-1"), ("topic", topic)]}
        for topic in topics
    ]
    put(place, {"alerts": [{**row, "summary": dict(row["labels"])["topic"]} for row in rows]})
    write(place, "throttle_events", [event(0, "mark", topic=topic) for topic in topics])
    write_windows(place, [window(0, topic=topic, limited_times=9) for topic in topics])
    browser = Browser(of(place))
    page = Elements(browser.get())
    assert "script" not in page.tags and "img" not in page.tags
    links = [link for link in dict.fromkeys(page.links) if "at=" in link]
    assert {parse_qs(urlsplit(link).query)["name"][0] for link in links} == set(topics)
    for link in links:
        told = Elements(browser.get(link))
        assert browser.status == "200 OK" and "script" not in told.tags


def test_a_page_follows_the_tables_and_says_when_it_cannot(tmp_path: Path) -> None:
    place = str(tmp_path / "warehouse")
    write_windows(place, [window(0, topic="persistent://a/b/c")])
    browser = Browser(of(place))
    assert "is over its limit" not in browser.get()
    put(place, {"alerts": [alert("firing", 0, 1)]})
    browser.pages.renew()
    assert "a/b/c is over its limit" in browser.get()
    made = browser.get()
    browser.pages.renew()
    assert browser.get() == made  # nothing has changed
    shutil.rmtree(place)
    browser.pages.renew()
    text = browser.get()
    assert browser.status == "200 OK" and "Not current" in text and "is over its limit" in text


@pytest.mark.parametrize("at", ["", "&at=2001-01-01"])
def test_of_what_no_job_has_decided_on_the_page_says_so(warehouse: str, at: str) -> None:
    browser = Browser(of(warehouse))
    text = browser.get(f"/explain?kind=topic&name=never/seen/it{at}")
    assert browser.status == "200 OK" and "No job has a decision" in text and "1970" not in text


def test_a_mistake_of_weir_ends_neither_the_page_nor_the_server(
    warehouse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "warehouse")
    shutil.copytree(warehouse, place)
    browser = Browser(of(place))
    made = browser.get()
    write(place, "alerts", [alert("firing", 0, 1)])

    def mistaken(*_: Any) -> None:
        raise KeyError("a rule of tomorrow")

    monkeypatch.setattr(live_pages, "now", mistaken)
    monkeypatch.setattr(live_pages, "around", mistaken)
    browser.pages.renew()
    text = browser.get()
    assert browser.status == "200 OK" and "a rule of tomorrow" in unescape(text)
    assert text.count("<section") == made.count("<section")
    assert "a rule of tomorrow" in unescape(browser.get("/explain?kind=topic&name=x"))
    assert browser.status == "500 Internal Server Error"
    monkeypatch.undo()
    browser.pages.renew()
    assert "a/b/c is over its limit" in browser.get() and "Not current" not in browser.get()


def test_a_page_that_was_being_made_while_a_table_changed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "warehouse")
    write_windows(place, [window(0, topic="persistent://a/b/c")])
    browser, made = Browser(of(place)), live_pages.now

    def slow(*asked: Any) -> Any:
        page = made(*asked)
        write(place, "alerts", [alert("firing", 0, 1)])
        browser.pages.renew()  # of the other thread, before the page is kept
        monkeypatch.undo()
        return page

    monkeypatch.setattr(live_pages, "now", slow)
    assert "is over its limit" not in browser.get()
    browser.pages.renew()
    assert "a/b/c is over its limit" in browser.get()


def test_who_asks_while_a_page_is_being_made_gets_that_one(
    warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page takes seconds, and a browser asks as soon as the address is printed."""
    pages, made, asked = LivePages(of(warehouse)), [], Barrier(3)
    now = live_pages.now

    def counted(*given: Any) -> Any:
        made.append(given)
        return now(*given)

    def ask(_: int) -> str:
        asked.wait()
        return pages.page("/", {})

    monkeypatch.setattr(live_pages, "now", counted)
    with ThreadPoolExecutor(3) as browsers:
        found = set(browsers.map(ask, range(3)))
    assert (len(made), len(found)) == (1, 1)


def test_what_cannot_be_asked_is_no_problem_of_the_others(warehouse: str) -> None:
    browser = Browser(of(warehouse))
    browser.get()
    browser.get("/?last=year")
    browser.pages.renew()
    assert browser.status.startswith("400") and "Not current" not in browser.get()


def test_a_store_that_does_not_answer_now_is_no_mistake_of_who_asks(
    warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise NotNow("s3://east/warehouse: does not answer")

    browser = Browser(of(warehouse))
    monkeypatch.setattr(live_pages, "around", away)
    assert "does not answer" in browser.get("/explain?kind=topic&name=x")
    assert browser.status == "503 Service Unavailable"


def test_an_empty_warehouse_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "warehouse" / "_weir").mkdir(parents=True)
    assert "There is no data yet" in Browser(of(tmp_path / "warehouse")).get()


def test_who_asks_for_many_clusters_fills_no_memory(
    warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pages, "KEPT", 2)
    browser = Browser(of(warehouse))
    for number in range(4):
        browser.get(f"/?cluster=c{number}")
    browser.pages.renew()
    assert list(browser.pages._kept) == [("hour", "c2"), ("hour", "c3")]
    monkeypatch.setattr(live_pages, "LOOKED_AT_S", -1.0)
    browser.pages.renew()
    assert not browser.pages._kept


@pytest.mark.parametrize(
    ("address", "status", "told"),
    [
        ("/nothing", "404 Not Found", "no such page"),
        ("/?last=year", "400 Bad Request", "allowed: hour, day, week"),
        ("/explain?kind=broker&name=x", "400 Bad Request", "unknown kind"),
        ("/explain?kind=topic&name=x&at=yesterday", "400 Bad Request", "at=yesterday"),
        ("/query?ask=no-such-question", "400 Bad Request", "query"),
        ("/query?ask=%22DELETE%20FROM%20alerts%22", "400 Bad Request", "query"),
        ("/query?ask=%22SELECT%20*%20FROM%20read_text('/etc/passwd')%22", "400 Bad", "query"),
        ("/query?ask='", "400 Bad Request", "quotation"),
        ("/query", "400 Bad Request", "query"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    warehouse: str, address: str, status: str, told: str
) -> None:
    browser = Browser(of(warehouse))
    text = browser.get(address)
    assert browser.status.startswith(status) and told in unescape(text), text


def test_it_only_reads_and_is_kept_from_frames_and_caches(warehouse: str) -> None:
    browser = Browser(of(warehouse))
    for method in ("POST", "PUT", "DELETE"):
        assert browser.get("/", method) == "GET or HEAD" and browser.status.startswith("405")
    browser.get()
    assert browser.headers["Cache-Control"] == "no-store"
    assert browser.headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(
    ("given", "lets_in"),
    [
        ("", False),
        ("Basic", False),
        ("Basic !!", False),
        ("Bearer c2VjcmV0", False),
        (f"Basic {base64.b64encode(b'me:wrong').decode()}", False),
        (f"Basic {base64.b64encode(b'secret').decode()}", False),
        (f"Basic {base64.b64encode(b'me:secret').decode()}", True),
        (f"basic {base64.b64encode(b':secret').decode()}", True),
    ],
)
def test_a_password_is_asked_for(warehouse: str, given: str, lets_in: bool) -> None:
    browser = Browser(of(warehouse), "secret")
    for path in ("/nothing", "/query", "/healthz/", "/"):
        browser.get(path if path != "/" or not lets_in else "/nothing", HTTP_AUTHORIZATION=given)
        assert browser.status.startswith("401") != lets_in
        assert lets_in or "WWW-Authenticate" in browser.headers
    # A probe has none, and learns nothing.
    assert browser.get("/healthz", HTTP_AUTHORIZATION=given) == "ok"


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "weir.example:80"])
def test_without_a_password_other_machines_are_kept_out(
    warehouse: str, listen: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(PASSWORD, raising=False)
    assert main(["serve", "--warehouse", warehouse, "--listen", listen]) == 2
    assert PASSWORD in capsys.readouterr().err


def test_an_address_that_is_none_is_refused(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--warehouse", warehouse, "--listen", "here"]) == 2
    assert "metrics.listen" in capsys.readouterr().err
    assert main(["serve", "--warehouse", f"{warehouse}-none"]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert serve.__doc__
