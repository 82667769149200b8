"""Sentences about the new producer ids of a principal: counted, throttled, rejected, and why."""

from __future__ import annotations

from app.show.explain.ask import IN_WINDOW, Ask, ConfiguredPolicies, Explained, Subject
from app.show.explain.nearby_rows import SnapshotReader, columns, in_order, row_of, summary_of, used
from app.show.explain.sentence import Draft, Quoted, Row, Sentence

# Consecutive decisions of one broker with the same outcome are one sentence.
_RUNS = f"""
WITH decided AS (
  SELECT {columns("producer_id_decisions")},
    lag((t.rule, t.bound, t.bound_source)) OVER of_broker AS before
  FROM producer_id_decisions AS t WHERE {{where}}
  WINDOW of_broker AS (PARTITION BY t.cluster, t.broker, t.user ORDER BY t.ts_wall_ms, t.row_no)
), numbered AS (
  SELECT *, sum(CASE WHEN before = (t.rule, t.bound, t.bound_source) THEN 0 ELSE 1 END) OVER (
      PARTITION BY t.cluster, t.broker, t.user ORDER BY t.ts_wall_ms, t.row_no
    ) AS run
  FROM decided AS t
), runs AS (
SELECT arg_min(t, (t.ts_wall_ms, t.row_no)) AS first, arg_max(t, (t.ts_wall_ms, t.row_no)) AS last,
  {{what}}
FROM numbered AS t GROUP BY t.cluster, t.broker, t.user, t.run
)
SELECT * FROM runs AS r
ORDER BY abs(CAST(r.first.ts_wall_ms AS HUGEINT) - $at), r.first.cluster, r.first.broker LIMIT $rows
"""
_WHAT = {
    "batches": "count(*)",
    "ids": "count(DISTINCT t.producer_id)",
    "longest_ms": "max(t.throttle_ms)",
    "least_tokens": "min(t.tokens)",
    "clients": "count(DISTINCT t.client_id)",
}
_VERDICTS = {
    "unseen_within_bound": "are counted as new",
    "unseen_over_bound": "are counted as new and over the bound, so the client is throttled",
    "rejected_over_bound": "are rejected: the bound is exceeded",
    "unseen_after_gap": "are counted as new and not charged, since they may have come in a gap of"
    " the feed",
    "recounted_after_disposal": "are counted again, since the filter that contained them was"
    " disposed of",
}
_SOURCES = {
    "user": "set by the policy of the user",
    "default_user": "set by the policy <default>",
}


def sentences(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
    """Decisions about ids of the principal around the moment, and the windows of its quota."""
    table = "producer_id_decisions"
    if table not in ask.entity or not reader.has(table):
        return []
    what = ", ".join(f"{sql} AS {name}" for name, sql in _WHAT.items())
    sql = _RUNS.format(where=f"{ask.where(table)} AND {IN_WINDOW}", what=what)
    result = []
    for found in reader.dicts(sql, used(sql, ask.params)):
        first, last = row_of(table, found["first"]), row_of(table, found["last"])
        result.append(_run(first, last, _sums(found, first, last, what)))
    # Windows without a new id are included only if they contain the moment.
    inside = (
        "t.ts_wall_ms > $lo AND t.window_start_ms < $hi AND (t.new_ids > 0"
        " OR t.rejected > 0 OR (t.ts_wall_ms > $at AND t.window_start_ms <= $at))"
    )
    result += [
        _window(row)
        for row in reader.rows(
            "producer_id_stats",
            f"{ask.where('producer_id_stats')} AND {inside}",
            ask.params,
            "ORDER BY abs(t.window_start_ms - $at), t.row_no LIMIT $rows",
        )
    ]
    return result


def _sums(found: dict[str, object], first: Row, last: Row, what: str) -> Row:
    bounds = {name: first[name] for name in ("cluster", "broker", "user")}
    where = " AND ".join(f't."{name}" = ${name}' for name in bounds)
    for sign, row in ((">=", first), ("<=", last)):
        where += f" AND {in_order(sign, ('ts_wall_ms', 'row_no'), row)}"
    return summary_of(
        "producer_id_decisions", what, where, bounds, {name: found[name] for name in _WHAT}
    )


def _run(first_row: Row, last_row: Row, sums: Row) -> Sentence:
    draft = Draft()
    first, run = draft.quote("first", first_row), draft.quote("run", sums)
    verdict = _VERDICTS[first["rule"]]
    if 1 in (run["ids"], run["batches"]):
        verdict = verdict.replace("are ", "is ", 1)
    if run["batches"] == 1:
        last = first
        verdict = verdict.replace("contained them", "contained it")
        text = (
            f"Producer id {first.producer_id:n} of user {first.user} (client {first.client_id},"
            f" first seen on {first.topic}) {verdict}"
        )
    else:
        last = draft.quote("last", last_row)
        text = (
            f"{run.ids:n producer id} of user {first.user} ({run.batches:n batch} of"
            f" {run.clients:n client}) on {first.broker} {verdict}, the last at"
            f" {last.ts_wall_ms:clock}"
        )
    source = _SOURCES.get(first["bound_source"])
    if source is None:
        text += ". No policy sets a bound"
    else:
        text += f". The bound is {first.bound:n new id} per {_unit(first)}, {source}"
    if last["tokens"] is not None and source is not None:
        text += f"; {last.tokens:n token} are left"
    else:
        text += f"; {last.rate:n id} per s"
    if run["longest_ms"]:
        at_most = "" if run["batches"] == 1 else "up to "
        text += f"; the throttle time of the client is {at_most}{run.longest_ms:ms}"
    return draft.sentence(text, (0, first["row_no"]))


def _unit(first: Quoted) -> str:
    return "s" if (first["switches"] or {}).get("rate_unit") == "second" else "quota window"


def _window(row: Row) -> Sentence:
    draft = Draft()
    window = draft.quote("window", row)
    text = (
        f"In the {window.window_ms:ms} from {window.window_start_ms:clock} user {window.user}"
        f" brought {window.new_ids:n new id} to {window.broker}, {window.rejected:n batch} were"
        f" rejected and {window.seen_batches:n batch} had known ids"
    )
    if row["utilisation"] is not None:
        text += f"; {window.utilisation:pct} of the bound"
    if row["tokens"] is not None:
        text += f"; {window.tokens:n token} left at its end"
    if row["live_filters"]:
        text += f"; {window.live_filters:n filter} of {window.state_bytes:n byte} in all"
    return draft.sentence(text, (1, row["row_no"]), row["window_start_ms"])


_USER = "list_contains($names, t.user)"
EXPLAINED = Explained(
    place=50,
    subjects=(Subject(80, ("principal",), sentences),),
    decisions={"principal": {"producer_id_decisions": _USER}},
    levels={"principal": dict.fromkeys(("producer_id_stats", "producer_id_owners"), _USER)},
)
