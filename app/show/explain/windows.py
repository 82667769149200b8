"""Sentences about the windows around a moment."""

from __future__ import annotations

from collections.abc import Callable

from app.show.explain.ask import Ask
from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Draft, Quoted, Sentence

PLACE = 30
"""That of all windows among the sentences of one time."""
_TOUCHES = "t.ts_wall_ms > $lo AND t.window_start_ms < $hi"
_HOLDS = "t.ts_wall_ms > $at AND t.window_start_ms <= $at"
_NEAREST = "ORDER BY abs(CAST(t.window_start_ms AS HUGEINT) - $at), t.row_no LIMIT $rows"


def window_sentences(
    reader: SnapshotReader,
    ask: Ask,
    table: str,
    notable: str,
    describe: Callable[[Quoted], str],
    of_rows: str = "true",
) -> list[Sentence]:
    """The windows of a table that contain the moment, and of the others that overlap the requested
    time the notable ones; `describe` gives what is told of one, or nothing. `of_rows` is a condition
    on all rows `t`."""
    if table not in ask.entity:
        return []
    when = f"{of_rows} AND {_TOUCHES} AND (({_HOLDS}) OR {notable})"
    rows = reader.rows(table, f"{ask.where(table)} AND {when}", ask.params, _NEAREST)
    result = []
    for row in rows:
        draft = Draft()
        window = draft.quote("window", row)
        span = f"In the {window.window_ms:ms} from {window.window_start_ms:clock}"
        text = describe(window)
        if text:
            order = (table, row["row_no"])
            result.append(draft.sentence(f"{span} {text}", order, row["window_start_ms"]))
    return result
