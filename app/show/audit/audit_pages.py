"""Data Docs: a page per audited table and one that lists them, below the warehouse.

The pages are whole in themselves: no script, and nothing is loaded from elsewhere, as the ones
that Great Expectations renders do. What tables hold is shown as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import Environment

from app.tables.small_files import PAGES as FOLDER
from app.tables.small_files import write_text
from app.terminal.moments import instant_of
from app.terminal.printable import in_page

if TYPE_CHECKING:
    from app.config.location import Location

INDEX = f"{FOLDER}/index.html"
"""Where the list of the audited tables is, below the warehouse; `<table>.html` is beside it."""
Row = dict[str, Any]

_FRAME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; --line: #8884; --bad: #b00020; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a8a; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 70rem;
  padding: 0 1rem; }
div { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.number, th.number { text-align: right; }
.failed { color: var(--bad); font-weight: 600; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 13px; }
</style></head><body>
"""
_PAGE = (
    _FRAME
    + """<p><a href="index.html">All tables</a></p>
<h1>{{ title }}</h1>
<p>Version {{ version }}, audited {{ at }}:
{{ held }} of {{ rows | length }} expectations hold.</p>
<div><table><thead><tr><th>Result</th><th>Expectation</th><th>Columns</th>
<th class="number">Rows against it</th><th>Seen</th></tr></thead><tbody>
{% for row in rows %}<tr>
<td{% if not row.success %} class="failed"{% endif %}>
{{- "holds" if row.success else "failed" }}</td>
<td>{{ row.expectation }}</td><td>{{ row.column or "" }}</td>
<td class="number">{{ "" if row.unexpected_count is none else row.unexpected_count }}</td>
<td>{% if not row.success %}<pre>{{ row.seen }}</pre>{% endif %}</td>
</tr>{% endfor %}
</tbody></table></div></body></html>
"""
)
_LIST = (
    _FRAME
    + """<h1>{{ title }}</h1>
<div><table><thead><tr><th>Table</th><th class="number">Version</th><th>Audited</th>
<th class="number">Expectations</th><th>Failed</th></tr></thead><tbody>
{% for table in tables %}<tr>
<td><a href="{{ table.name }}.html">{{ table.name }}</a></td>
<td class="number">{{ table.version }}</td><td>{{ table.at }}</td>
<td class="number">{{ table.count }}</td>
<td{% if table.failed %} class="failed"{% endif %}>{{ table.failed | join("; ") or "none" }}</td>
</tr>{% endfor %}
</tbody></table></div></body></html>
"""
)


def write_pages(
    warehouse: Location, results: Mapping[str, list[Row]], changed: Iterable[str]
) -> None:
    """Write the pages of the tables `changed` and the list of all; failures come first."""
    for name in changed:
        write_text(warehouse, f"{FOLDER}/{name}.html", page(name, results[name]))
    write_text(warehouse, INDEX, index(results))


def page(name: str, rows: list[Row]) -> str:
    """The page of a table."""
    shown = sorted(rows, key=lambda row: bool(row["success"]))
    return _render(
        _PAGE,
        title=name,
        version=rows[0]["version"],
        at=instant_of(rows[0]["checked_ms"]),
        held=sum(row["success"] for row in rows),
        rows=[
            {
                **row,
                "seen": "\n".join(
                    f"{name}: {json.dumps(value, ensure_ascii=False, indent=1)}"
                    for name, value in json.loads(row["observed"]).items()
                ),
            }
            for row in shown
        ],
    )


def index(results: Mapping[str, list[Row]]) -> str:
    """The list of all tables."""
    tables = [
        {
            "name": name,
            "version": rows[0]["version"],
            "at": instant_of(rows[0]["checked_ms"]),
            "count": len(rows),
            "failed": [r["expectation"] for r in rows if not r["success"]],
        }
        for name, rows in results.items()
    ]
    tables.sort(key=lambda table: (not table["failed"], table["name"]))
    return _render(_LIST, title="Data quality", tables=tables)


def _render(template: str, **values: Any) -> str:
    return Environment(autoescape=True, finalize=in_page).from_string(template).render(values)
