"""The cause of a mark: the limiter that acted, and the topic that used most of a shared limit."""

from __future__ import annotations

from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Quoted, Row

_CAUSES = {
    "topic": "{publisher} used up its publish limit",
    "resource_group": "{group} used up its limit at a publish of {publisher}",
    "broker": "broker {mark.broker} used up its own limit at a publish of {publisher}",
    "connection": "a publish of {publisher} brought connection {mark.cnx_id} to its limit of"
    " requests in flight",
    "unknown": "connection {mark.cnx_id} was seen paused, for no limit that is known",
    "io_thread": "a publish of {publisher} brought {thread} above its share of buffered bytes",
}
_HOLDS = (
    "t.cluster = $cluster AND t.broker = $broker AND t.window_start_ms <= $ts_wall_ms"
    " AND t.window_start_ms + t.window_ms > $ts_wall_ms"
)
# Rows of earlier versions do not name the group of a topic: there it is those at whose publishes
# the limit acted.
_OF_GROUP = """
SELECT DISTINCT coalesce(t.trigger_topic, t.culprit_topic) AS topic FROM throttle_events AS t
WHERE t.cluster = $cluster AND t.broker = $broker AND t.limiter = $limiter
  AND t.limiter_name IS NOT DISTINCT FROM $limiter_name
  AND t.ts_wall_ms BETWEEN $ts_wall_ms - 60000 AND $ts_wall_ms + 60000
"""


def cause(mark: Quoted, *, begins: bool = False) -> str:
    """Why a limiter marked a connection; `begins` a sentence."""
    topic = mark.culprit_topic if mark["trigger_topic"] is None else mark.trigger_topic
    group, thread = (
        f"resource group {mark.limiter_name}",
        f"IO thread {mark.limiter_name} of {mark.broker}",
    )
    if mark["limiter_name"] is None:  # a row of an earlier version
        group, thread = (
            f"the resource group of {topic}",
            f"the IO thread of connection {mark.cnx_id}",
        )
    text = _CAUSES[mark["limiter"]].format(publisher=topic, group=group, thread=thread, mark=mark)
    # The name of a topic stays as it is.
    return text[0].upper() + text[1:] if begins and mark["limiter"] != "topic" else text


def most_used(reader: SnapshotReader, mark: Row) -> tuple[str, Row, Row] | None:
    """The topic that used most of a shared limit in the window of a mark: the unit (`messages` or
    `bytes`), the topic's row of statistics and the sum over the topics that share the limit."""
    if not reader.has("topic_throttle_stats"):
        return None
    limiter = mark["limiter"]
    counts_messages = limiter == "connection" or (
        mark["balance_msgs"] is not None and mark["balance_msgs"] <= 0
    )
    used = "messages" if counts_messages else "bytes"
    where, params = _HOLDS, dict(mark.values)
    if limiter != "broker":
        topics = [mark["topic"], *(mark["collateral_topics"] or ())]
        if limiter == "resource_group":
            wanted = {
                name: params[name]
                for name in ("cluster", "broker", "limiter", "limiter_name", "ts_wall_ms")
            }
            topics = [row["topic"] for row in reader.dicts(_OF_GROUP, wanted)]
            where += " AND (t.resource_group = $limiter_name OR list_contains($topics, t.topic))"
        else:
            where += " AND list_contains($topics, t.topic)"
        params["topics"] = sorted(topic for topic in topics if topic is not None)
    found = reader.rows(
        "topic_throttle_stats",
        f"{where} AND t.{used} > 0",
        params,
        f"ORDER BY t.{used} DESC, t.topic LIMIT 1",
    )
    if not found:
        return None
    what = f"sum(t.{used})::BIGINT AS {used}"
    return used, found[0], reader.summary("topic_throttle_stats", what, where, params)
