"""A page as one HTML file that loads nothing, or as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import mistune
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from app.show.report.charts import NARROW, WIDE, svg
from app.show.report.model import Chart, Fold, Grid, Link, Page, Part, Runbook
from app.show.report.text import NUMBERS, cell_text, runbook_target
from app.terminal.phrases import unbroken
from app.terminal.printable import in_page
from app.terminal.program import PROGRAM
from app.terminal.rows import plain

LENGTHS_MS = {"hour": 3_600_000, "day": 86_400_000}
"""Kinds of column that show when something held, and how long the time is that they show."""
KINDS = {Grid: "grid", Chart: "chart", Fold: "fold", Link: "link", Runbook: "runbook"}
RELATIVE_LINK = re.compile(r"\[([^]]*)\]\((?!https?:)[^)]*\)")


@dataclass(frozen=True)
class Live:
    """What a page has that is served: its rows lead to `explain` and to their questions.

    `links` are texts and addresses of other pages; the browser loads it again after `again_s`, if that is
    not 0; `problem` is why it is older than the tables; `of` ends the address of a question.
    """

    links: Sequence[tuple[str, str]] = ()
    again_s: int = 0
    problem: str = ""
    of: str = ""


def html(page: Page, day: str, live: Live | None = None) -> str:
    """The page as HTML; times of `day` (ISO 8601) are shown without their date.

    Text is escaped by the template. Three things go in as they are: style and runbooks, which are
    ours, and SVG, in which Vega has escaped every text.
    """
    templates = Environment(
        loader=PackageLoader("app.show.report", ""),
        autoescape=True,
        finalize=in_page,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = Markup(files("app.show.report").joinpath("style.css").read_text("utf-8"))
    return templates.get_template("page.html.j2").render(
        page=page,
        program=PROGRAM,
        style=style,
        live=live,
        numbers=NUMBERS,
        lengths=LENGTHS_MS,
        kind=lambda part: KINDS[type(part)],
        cell=lambda value, kind: cell_text(value, kind, day),
        runbook=runbook_target,
        rendered=_rendered,
        unbroken=unbroken,
        wide=lambda chart: _drawn(chart, WIDE),
        narrow=lambda chart: _drawn(chart, NARROW),
    )


def _drawn(chart: Chart, frame: Any) -> Markup:
    return Markup(svg(chart, frame))


def _rendered(text: str) -> Markup:
    """A runbook without its title; links into the documentation are left out."""
    body = text.partition("\n")[2]
    return Markup(mistune.html(RELATIVE_LINK.sub(r"\1", body)))


def as_json(page: Page) -> dict[str, Any]:
    """The content of the page, with the rows behind its tables and charts."""
    return {
        **page.facts,
        "title": page.title,
        "covers": page.covers,
        "verdict": page.verdict,
        "numbers": [
            {"label": t.label, "value": t.value, "note": t.note, "bad": t.bad} for t in page.tiles
        ],
        **({} if page.actions is None else {"actions": _part(page.actions)["rows"]}),
        "sections": {
            section.key: {
                "title": section.title,
                "sentences": list(section.sentences),
                "parts": [_part(part) for part in section.parts],
            }
            for section in page.sections
        },
    }


def _part(part: Part) -> dict[str, Any]:
    known = {"kind": KINDS[type(part)]}
    if isinstance(part, Link):
        return {**known, "text": part.text, "target": part.target}
    if isinstance(part, Fold | Runbook):
        return {**known, "title": part.title, "text": part.text}
    return {**known, "title": part.title, "rows": [plain(row) for row in part.rows]}
