"""The command `report`: one page of HTML about a warehouse, without network or scripts.

Start with `build`; the jobs declare sections, alert rules and jobs the sentences at the top (`told`,
`summary`), `sections` has those of no job. Imports `app.jobs`, `app.read`, `app.config`, `app.show.alerts`
and the pages of `app.show.audit`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import UserError
from app.read.question import LEAST, MOST
from app.terminal.outputs import require_folder, write_whole
from app.terminal.printable import say, say_json

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.show.report.model import Page
    from app.show.report.report_reader import ReportSpan


def report(
    settings: Settings,
    out: Path | None,
    from_ms: int | None = None,
    to_ms: int | None = None,
    as_of_ms: int | None = None,
    as_json: bool = False,
    configured: bool = False,
    cluster: str | None = None,
) -> int:
    """Write the page to `out` and print its location, or print its content as JSON; 0."""
    from app.show.report.report_reader import ReportSpan

    if out is None and not as_json:
        raise UserError(
            "report: --out is missing\nname the page to write, for example "
            "--out report.html, or take --json"
        )
    span = ReportSpan(LEAST if from_ms is None else from_ms, MOST if to_ms is None else to_ms)
    if span.start_ms >= span.end_ms:
        raise UserError("report: --from is not before --to")
    page = write_page(settings, out, span, as_of_ms, configured, cluster)
    if as_json:
        from app.show.report.page import as_json as in_json

        say_json(in_json(page), indent=1)
    else:
        say(f"{page.verdict}\n{page.covers}\nThe report is in {out}.")
    return 0


def write_page(
    settings: Settings,
    out: Path | None,
    span: ReportSpan | None = None,
    as_of_ms: int | None = None,
    configured: bool = False,
    cluster: str | None = None,
) -> Page:
    """The page about a warehouse, written to `out` if given; `configured`: these are the settings
    of its run, not only its location."""
    from app.show.report.build import build, day
    from app.show.report.report_reader import ReportSpan

    require_folder(out)
    links_from = Path() if out is None else out.absolute().parent
    page = build(settings, span or ReportSpan(), as_of_ms, configured, links_from, cluster)
    if out is not None:
        from app.show.report.page import html

        write_whole(out, html(page, day(page)))
    return page
