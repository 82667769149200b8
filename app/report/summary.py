"""The first screen of a report: findings and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.report.findings import groups as group_findings
from app.report.findings.backlogs import (
    BACKLOG_CHECK_COLUMNS,
    BACKLOG_EVICTION_COLUMNS,
    BACKLOG_SUBSCRIPTION_COLUMNS,
    SOON_S,
    backlog_sentences,
)
from app.report.findings.cache import cache_sentence
from app.report.findings.groups import group_sentences
from app.report.findings.large_messages import (
    CHUNK_EVENT_COLUMNS,
    INCOMPLETE_COLUMNS,
    MESSAGE_COLUMNS,
    large_message_sentence,
)
from app.report.findings.producer_ids import DECISION_COLUMNS, producer_id_sentences
from app.report.findings.throttling import THROTTLE_COLUMNS, sentences, summarise
from app.report.model import Row, Section, Tile
from app.report.reader import Reader
from app.report.sections import (
    alerting,
    backlogs,
    cache,
    data_quality,
    groups,
    large_messages,
    principals,
    quotas,
    throttling,
)
from app.report.words import NONE, percent_text, seconds_text
from app.terminal.counts import counted

# Only the rows that the sentences need: a fleet has a check of every topic each minute.
_PAUSED = """
SELECT CAST(sum(culprit_ns) AS BIGINT) AS culprit_ns, count(*) AS topics,
  CAST(sum(shared_ns) AS BIGINT) AS shared_ns, CAST(sum(collateral_ns) AS BIGINT) AS collateral_ns
FROM topic_throttle_stats
"""
_MARKS = """
SELECT {columns} FROM (
  SELECT *, lag(reads_paused) OVER (
      PARTITION BY cluster, broker, cnx_id
      ORDER BY ts_wall_ms NULLS FIRST, ts_mono_ns NULLS FIRST, row_no) AS were_paused
  FROM throttle_events
) WHERE reads_paused IS DISTINCT FROM were_paused
"""
_CHECKS = """
SELECT {columns} FROM (
  SELECT *, row_number() OVER (
      PARTITION BY cluster, topic ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC) AS place
  FROM backlog_checks
) WHERE place = 1 OR exceeded_size OR exceeded_time
"""
_AHEAD = """
SELECT {columns} FROM (
  SELECT *, row_number() OVER (
      PARTITION BY cluster, topic, subscription
      ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC) AS place
  FROM backlog_subscriptions
) WHERE place = 1 AND time_to_quota_s <= $within
"""

SHARED = 1000
"""Shared limits whose users are looked up."""


@dataclass(frozen=True)
class Summary:
    """One sentence, the numbers, and the findings."""

    verdict: str
    tiles: list[Tile]
    section: Section


def summary(reader: Reader) -> Summary:
    """The first screen."""
    facts = _facts(reader)
    findings = _findings(reader)
    sentences = findings or ["No job has findings in this time."]
    section = Section("what-happened", "What happened", sentences)
    return Summary(_verdict(reader, facts), _tiles(reader, facts), section)


def _facts(reader: Reader) -> Row:
    alerts = reader.rows(alerting.LATEST)
    reads = reader.row(
        f"SELECT sum(hits) AS hits, sum(hits + misses) AS reads FROM ({cache.TOTALS})"
    )
    return {
        "pauses": reader.row(throttling.TOTALS),
        "quotas": reader.row(quotas.SUMMARY),
        "backlogs": reader.row(backlogs.SUMMARY),
        "soon": reader.row(backlogs.SOON, within=SOON_S)["topics"],
        "groups": reader.row(groups.SUMMARY),
        "ids": reader.row(principals.SUMMARY),
        "large": large_messages.totals(reader),
        "cache": reads["hits"] / reads["reads"] if reads["reads"] else None,
        "quarantined": reader.row(data_quality.QUARANTINED)["records"],
        "failed": sum(row["failed"] for row in reader.rows(data_quality.AUDIT)),
        "firing": sum(row["state"] == "firing" for row in alerts),
        "alerts": len(alerts),
    }


def _verdict(reader: Reader, facts: Row) -> str:
    if reader.span is None:
        return "There is no data yet: no job has completed a window."
    pauses, quotas_ = facts["pauses"], facts["quotas"]
    parts = []
    if facts["firing"]:
        parts.append(
            f"{counted(facts['firing'], 'alert')} {'fires' if facts['firing'] == 1 else 'fire'}"
        )
    if quotas_["breached"]:
        parts.append(
            f"{counted(quotas_['breached'], 'quota')} "
            f"{'was' if quotas_['breached'] == 1 else 'were'} breached"
        )
    if pauses["victims"]:
        victims = pauses["victims"]
        parts.append(
            f"{counted(victims, 'topic')} {'was' if victims == 1 else 'were'} paused for "
            f"the limits of others ({seconds_text(pauses['other_s'])}, summed over topics)"
        )
    if facts["large"][large_messages.FATES[2]]:
        lost = facts["large"][large_messages.FATES[2]]
        parts.append(f"{counted(lost, 'large message')} {'was' if lost == 1 else 'were'} lost")
    if facts["groups"]["lost"]:
        losers = facts["groups"]["losers"]
        parts.append(f"{counted(losers, 'group')} lost {facts['groups']['lost']:,} offsets")
    if not parts:
        return "No quota was breached, and no topic was paused for the limits of others."
    text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"{text[0].upper()}{text[1:]}."


def _tiles(reader: Reader, facts: Row) -> list[Tile]:
    pauses, backlog, ids = facts["pauses"], facts["backlogs"], facts["ids"]
    lost, whole = (facts["large"][fate] for fate in reversed(large_messages.FATES[::2]))
    paused = pauses["own_s"] + pauses["shared_s"] + pauses["other_s"]
    of_kafka = facts["groups"]
    lag = (
        [
            Tile(
                "offsets lost unread",
                f"{of_kafka['lost']:,}",
                f"a lag of {of_kafka['lag']:,} now",
                bool(of_kafka["lost"]),
            )
        ]
        if of_kafka["groups"]
        else []
    )
    return [
        Tile(
            "alerts firing",
            str(facts["firing"]) if facts["alerts"] else NONE,
            "" if facts["alerts"] else "none evaluated yet",
            bool(facts["firing"]),
        ),
        Tile(
            "quotas breached",
            f"{facts['quotas']['breached']:,}",
            f"of {facts['quotas']['quotas']:,}",
            bool(facts["quotas"]["breached"]),
        ),
        Tile(
            "paused by others",
            seconds_text(pauses["other_s"]) if paused else NONE,
            f"{percent_text(pauses['other_s'] / paused)} of paused time, summed over topics"
            if paused
            else "no pauses",
            bool(pauses["victims"]),
        ),
        Tile(
            "backlogs over quota",
            f"{backlog['over']:,}" if backlog["topics"] else NONE,
            f"{facts['soon']:,} more within the hour" if backlog["topics"] else "none checked",
            bool(backlog["over"]),
        ),
        *lag,
        Tile(
            "users over id quota",
            f"{ids['over']:,}" if ids["users"] else NONE,
            f"of {ids['users']:,}" if ids["users"] else "no producer ids seen",
            bool(ids["over"]),
        ),
        Tile(
            "large messages lost",
            f"{lost:,}" if lost + whole else NONE,
            f"{whole:,} arrived" if lost + whole else "none seen",
            bool(lost),
        ),
        Tile(
            "reads from cache",
            NONE if facts["cache"] is None else percent_text(facts["cache"]),
            "no reads seen" if facts["cache"] is None else "",
        ),
        Tile(
            "in quarantine",
            f"{facts['quarantined']:,}",
            f"{counted(facts['failed'], 'check')} of quality failed"
            if facts["failed"]
            else "records not applied",
            bool(facts["failed"]),
        ),
    ]


def _findings(reader: Reader) -> list[str]:
    """The sentences about a warehouse, as the demo prints them."""
    result = []
    total = reader.row(_PAUSED)
    if total["topics"]:
        events = reader.rows(_MARKS.format(columns=_listed(THROTTLE_COLUMNS)))
        result += sentences(summarise(events, [total], [], reader.ask("shared-limits", SHARED)))
    result += producer_id_sentences(reader.columns("producer_id_decisions", DECISION_COLUMNS))
    large = large_message_sentence(
        reader.columns("chunk_messages", MESSAGE_COLUMNS),
        reader.columns("chunk_events", CHUNK_EVENT_COLUMNS),
        reader.columns("incomplete_messages", INCOMPLETE_COLUMNS),
    )
    result += [] if large is None else [large]
    result += backlog_sentences(
        reader.rows(_CHECKS.format(columns=_listed(BACKLOG_CHECK_COLUMNS))),
        reader.rows(_AHEAD.format(columns=_listed(BACKLOG_SUBSCRIPTION_COLUMNS)), within=SOON_S),
        reader.columns("backlog_evictions", BACKLOG_EVICTION_COLUMNS),
    )
    result += group_sentences(
        reader.rows(group_findings.LOSSES),
        reader.rows(group_findings.SOON, within=SOON_S),
        reader.rows(group_findings.AHEAD),
        reader.rows(group_findings.OTHER_UNIT),
    )
    cached = cache_sentence(reader.rows(cache.TOTALS))
    return [*result, *([] if cached is None else [cached])]


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns)
