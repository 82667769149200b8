"""The pages that are served: what is wrong now, `explain` of a row, the answer of a question."""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import duckdb

from app.errors import UserError, reason
from app.read.arrow_answers import asked
from app.read.databases import time_limit
from app.read.question import given as parameters
from app.read.relations import Warehouse, first_lines, states
from app.show.explain.ask import Ask
from app.show.explain.explain_command import around
from app.show.explain.sentence import clock, day
from app.show.report.build import build
from app.show.report.build import day as day_of
from app.show.report.model import Chart, Fold, Grid, GridColumn, Page, ReportSection
from app.show.report.page import Live, html
from app.show.report.report_reader import ReportSpan
from app.terminal.counts import counted
from app.terminal.moments import instant_of, moment_ms
from app.terminal.rows import plain

if TYPE_CHECKING:
    from app.config.settings import Settings

AGAIN_S, LOOKED_AT_S, LONGEST_S = 15, 600.0, 20.0
"""After which a browser loads a page again; for which a page is kept current after somebody has asked
for it; for the statement of an answer."""
KEPT, ROWS = 32, 500
"""Most pages that are kept current, and rows of an answer."""
LAST_MS = {"hour": 3_600_000, "day": 86_400_000, "week": 7 * 86_400_000}
# Options of the command `query` that are parameters of a question.
_OPTION = re.compile(r" --(by|since|until) ")


class LivePages:
    """The pages of a warehouse. Those of what is wrong now are made beside the requests, where a
    table has changed, while somebody looks at them.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._problem = ""
        # By the time and the cluster that a page shows: when it was asked for last (s), and the page with
        # the versions that its tables have at least.
        self._asked_s: dict[tuple[str, str], float] = {}
        self._kept: dict[tuple[str, str], tuple[object, Page, Live]] = {}

    def page(self, path: str, given: Mapping[str, str]) -> str:
        """A page as HTML; UserError for what cannot be asked."""
        if path != "/":
            return html(PAGES[path](self._settings, given), "", Live([("what is wrong now", "/")]))
        address = given.get("last", "hour"), given.get("cluster", "")
        _, page, live = self._kept.get(address) or self._made(address, self._versions())
        self._asked_s[address] = time.monotonic()
        return html(page, day_of(page), replace(live, problem=self._problem))

    def keep_current(self, stop: threading.Event) -> None:
        """Make the pages again that are looked at, until stopped."""
        while not stop.wait(AGAIN_S):
            self.renew()

    def renew(self) -> None:
        """Make the pages again whose tables have changed, and forget those that nobody looks at."""
        try:
            versions = self._versions()
            newest = sorted(self._asked_s, key=lambda each: -self._asked_s[each])
            for place, address in enumerate(newest):
                if place >= KEPT or time.monotonic() - self._asked_s[address] > LOOKED_AT_S:
                    del self._asked_s[address]
                    self._kept.pop(address, None)
                else:
                    self._made(address, versions)
            self._problem = ""
        except Exception as error:  # noqa: BLE001 - the page that was there stays, and says so
            self._problem = f"Not current, because the tables cannot be read: {reason(error)}"

    def _versions(self) -> object:
        warehouse = Warehouse.of(self._settings.location)
        warehouse.require()
        return tuple(state.version for state in states(warehouse))

    def _made(self, address: tuple[str, str], versions: object) -> tuple[object, Page, Live]:
        with self._lock:  # a page takes a second of both cores; who waited has what is made by now
            kept = self._kept.get(address)
            if kept is None or kept[0] != versions:
                self._kept[address] = kept = versions, *now(self._settings, *address)
            return kept


def now(settings: Settings, last: str, cluster: str) -> tuple[Page, Live]:
    """The last hour, day or week of the warehouse's time, and the alerts as they are now; of a
    cluster, or of all for "".
    """
    if last not in LAST_MS:
        raise UserError(f"last={last}: allowed: {', '.join(LAST_MS)}")
    page = build(
        settings, ReportSpan(), None, True, cluster=cluster or None, recent_ms=LAST_MS[last]
    )
    sections = [
        replace(section, parts=[each for each in section.parts if not isinstance(each, Chart)])
        for section in page.sections
    ]
    of = f"&{urlencode({'cluster': cluster})}" if cluster else ""
    links = [(f"last {each}", f"/?last={each}{of}") for each in LAST_MS if each != last]
    if cluster:
        links.append(("all clusters", f"/?last={last}"))
    return replace(page, sections=sections), Live(links, AGAIN_S, of=of)


def explain(settings: Settings, given: Mapping[str, str]) -> Page:
    """The decisions about an entity around a moment."""
    cluster, at = given.get("cluster"), given.get("at")
    ask = Ask.about(
        given.get("kind", ""), given.get("name", ""), given.get("second"), cluster=cluster
    )
    _, ask, found, hidden = around(settings, ask, moment_ms(at, f"at={at}") if at else None)
    return Page(
        title := f"{ask.kind} {ask.name}",
        f"{len(found)} of {len(found) + hidden} decisions around {instant_of(ask.at_ms)}."
        if found
        else "No job has a decision about it at that time.",
        title,
        [],
        [
            ReportSection(
                key, key, [f"{clock(told.at_ms)} {told.text} ({told.source})" for told in sentences]
            )
            for key, sentences in groupby(found, lambda sentence: day(sentence.at_ms))
        ],
    )


def answer(settings: Settings, given: Mapping[str, str]) -> Page:
    """The answer of a question or a statement, as the command `query` is asked it."""
    text, every = given.get("ask", ""), Warehouse.of(settings.location, settings.owners)
    name, *more = shlex.split(_OPTION.sub(r" --param \1=", text)) or [""]
    params = parameters([word for word in more if word != "--param"])
    try:
        with (
            asked(every.of_cluster(given.get("cluster")), name, params) as (
                connection,
                sql,
                values,
            ),
            time_limit(connection, LONGEST_S * 1000),
        ):
            connection.execute(sql, values)
            names = [column[0] for column in connection.description or []]
            rows = connection.fetchmany(ROWS)
    except duckdb.Error as error:
        raise UserError(f"query: {first_lines(error)}") from error
    grid = Grid(
        counted(len(rows), "row"),
        [GridColumn(each, each) for each in names],
        [plain(dict(zip(names, row, strict=True))) for row in rows],
    )
    return Page(
        text, "", text, [], [ReportSection("answer", "Answer", [], [grid, Fold("SQL", sql)])]
    )


PAGES: dict[str, Callable[[Settings, Mapping[str, str]], Page]] = {
    "/explain": explain,
    "/query": answer,
}
"""Those that are made when they are asked for."""
