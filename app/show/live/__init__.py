"""The command `serve`: the report of the last hour as a page that is served and kept current.

Start with `serve`; `live_pages` makes the pages: what is wrong now, `explain` of a row, the answer of a
question. Imports `app.show.report`, `app.show.explain`, `app.show.metrics` and `app.read`.
"""

from __future__ import annotations

from app.show.live.live_server import serve

__all__ = ["serve"]
