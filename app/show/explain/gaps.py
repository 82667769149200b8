"""Sentences about gaps in the records of a broker that a decision lies in or after."""

from __future__ import annotations

from collections.abc import Iterable

from app.jobs import parts
from app.show.explain.ask import Ask
from app.show.explain.nearby_rows import SnapshotReader, literal
from app.show.explain.sentence import Draft, Row, Sentence

RULE = "gap"
"""The rule of these sentences: what was not seen decides nothing."""
_BEGIN = "coalesce(t.gap_from_wall_ms, t.ts_wall_ms)"
_NEAREST = (
    "QUALIFY row_number() OVER (PARTITION BY t.cluster, t.broker, t.source_feed, t.seq,"
    " t.ts_wall_ms, t.job ORDER BY t.blind_until_ms) = 1"
    " ORDER BY abs(CAST(t.ts_wall_ms AS HUGEINT) - $at), t.job LIMIT $rows"
)


def sentences(reader: SnapshotReader, ask: Ask, decisions: Iterable[Sentence]) -> list[Sentence]:
    """The gaps of the brokers that have decided, as long as a job was blind around the moment."""
    places = sorted(
        {
            (str(row["cluster"]), str(row["broker"]))
            for row in (s.decision for s in decisions)
            if row.values.get("cluster") is not None and row.values.get("broker") is not None
        }
    )
    if not places:
        return []
    brokers = " OR ".join(
        f"(t.cluster = {literal(cluster)} AND t.broker = {literal(broker)})"
        for cluster, broker in places
    )
    jobs = ", ".join(
        literal(job)
        for job, part in parts("explain").items()
        if ask.kind in part.EXPLAINED.decisions or ask.kind in part.EXPLAINED.levels
    )
    where = f"({brokers}) AND t.job IN ({jobs}) AND {_BEGIN} < $hi AND t.blind_until_ms > $lo"
    return [_gap(row) for row in reader.rows("coverage_gaps", where, ask.params, _NEAREST)]


def _gap(row: Row) -> Sentence:
    draft = Draft()
    gap, began = draft.quote("gap", row), row["gap_from_wall_ms"]
    records = "Records" if row["dropped"] is None else f"{gap.dropped:n record}"
    span = "up" if began is None else f"from {gap.gap_from_wall_ms:clock}"
    text = (
        f"{records} of {gap.broker} {'is' if row['dropped'] == 1 else 'are'} missing {span}"
        f" to {gap.ts_wall_ms:clock}: until {gap.blind_until_ms:clock} {gap.job} does not know"
        " what they changed"
    )
    at_ms = row["ts_wall_ms"] if began is None else min(began, row["ts_wall_ms"])
    return draft.sentence(text, (row["job"],), at_ms, RULE)
