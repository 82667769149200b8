"""The cause of a mark: the limiter that acted, and the topic that used most of a shared limit."""

from __future__ import annotations

from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Quoted, Row

_CAUSES = {
    "topic": "{mark.trigger_topic} used up its publish limit",
    "resource_group": "resource group {mark.limiter_name} used up its limit at a publish of"
    " {mark.trigger_topic}",
    "broker": "broker {mark.broker} used up its own limit at a publish of {mark.trigger_topic}",
    "connection": "a publish of {mark.trigger_topic} brought connection {mark.cnx_id} to its limit of"
    " requests in flight",
    "unknown": "connection {mark.cnx_id} was seen paused, for no limit that is known",
    "io_thread": "a publish of {mark.trigger_topic} brought IO thread {mark.limiter_name} of"
    " {mark.broker} above its share of buffered bytes",
}
_HOLDS = (
    "t.cluster = $cluster AND t.broker = $broker AND t.window_start_ms <= $ts_wall_ms"
    " AND t.window_start_ms + t.window_ms > $ts_wall_ms"
)


def cause(mark: Quoted, *, begins: bool = False) -> str:
    """Why a limiter marked a connection; `begins` a sentence."""
    text = _CAUSES[mark["limiter"]].format(mark=mark)
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
    if limiter == "resource_group":
        where += " AND t.resource_group = $limiter_name"
    elif limiter != "broker":
        where += " AND list_contains($topics, t.topic)"
        topics = [mark["topic"], *(mark["collateral_topics"] or ())]
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
