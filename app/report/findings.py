"""The findings of a warehouse as sentences and a small table, from the committed tables alone."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from app.terminal.counts import counted
from app.terminal.program import PROGRAM
from app.terminal.sizes import size_text

Row = Mapping[str, Any]
Message = tuple[str, str, str, str]
"""Cluster, topic, subscription, uuid: a large message as one subscription has it."""

THROTTLE_COLUMNS = (
    "cluster", "broker", "cnx_id", "ts_mono_ns", "ts_wall_ms", "row_no", "reads_paused",
    "limiter", "limiter_name", "topic", "culprit_topic", "collateral_topics",
)
STATS_COLUMNS = ("topic", "culprit_ns", "shared_ns", "collateral_ns")
DECISION_COLUMNS = (
    "cluster", "user", "producer_id", "verdict", "bound", "bound_source", "ts_wall_ms",
)
MESSAGE_COLUMNS = ("cluster", "topic", "subscription", "uuid")
CHUNK_EVENT_COLUMNS = (*MESSAGE_COLUMNS, "consumer", "outcome")
INCOMPLETE_COLUMNS = (*MESSAGE_COLUMNS, "producer_name", "window_start_ms")
BACKLOG_CHECK_COLUMNS = (
    "cluster", "topic", "pass_ms", "exceeded_size", "exceeded_time", "limit_bytes", "limit_s",
    "retention_policy", "oldest_subscription", "age_s",
)
BACKLOG_SUBSCRIPTION_COLUMNS = (
    "cluster", "topic", "pass_ms", "subscription", "age_s", "time_to_quota_s",
)
BACKLOG_EVICTION_COLUMNS = ("cluster", "topic", "entries_skipped")
CACHE_COLUMNS = ("policy", "max_bytes", "topic", "hits", "misses", "miss_bytes")
QUARANTINE_COLUMNS = ("reason_code", "source_partition", "source_offset")
SHOWN = 8
NAMED = 3
"""The most users, producers, consumers or topics that a sentence names."""
SOON_S = 3600
"""A quota that will be reached within this time is reported."""
DELIVERY = "delivery of a large message to a subscription"
PLURALS = {"batch": "batches", DELIVERY: "deliveries of large messages to subscriptions"}
EXPIRED = frozenset({"EXPIRED"})
LOST = frozenset({"GAP", "NO_FIRST_CHUNK", "SHARED_ORPHAN"})
GIVEN_UP = frozenset({"EVICTED", "ORPHANED", "GIVEN_UP_COUNT", "GIVEN_UP_OVERFLOW",
                      "COUNT_EXCEPTION", "OVERFLOW_EXCEPTION"})
"""Outcomes that end a large message, by reason; a message may have several."""
SHORT_NAMES = {"resource_group": "group", "io_thread": "IO thread"}
QUERIES = (
    ("topics by the time that they were paused for the limits of others",
     "SELECT topic, sum(collateral_times) AS pauses, round(sum(collateral_ns) / 1e9, 1) AS seconds "
     "FROM topic_throttle_stats GROUP BY topic ORDER BY seconds DESC LIMIT 10"),
    ("pauses of connections with their culprits and shared limits",
     "SELECT cnx_id, (end_ns - start_ns) / 1e9 AS seconds, culprit_topics, shared_limits "
     "FROM throttle_intervals ORDER BY seconds DESC LIMIT 10"),
    ("quarantined records by reason, with an example",
     "SELECT reason_code, count(*) AS records, max(detail) AS detail, max(raw) AS example "
     "FROM quarantine GROUP BY reason_code ORDER BY records DESC"),
    ("new producer ids by user, and batches that the quota would reject",
     "SELECT d.user, count(DISTINCT producer_id) AS distinct_ids, "
     "count(*) FILTER (WHERE verdict = 'rejected') AS rejected, max(bound) AS bound "
     "FROM producer_id_decisions d GROUP BY d.user ORDER BY distinct_ids DESC LIMIT 10"),
    ("outcomes of large messages by consumer",
     "SELECT topic, consumer, outcome, count(DISTINCT uuid) AS messages "
     "FROM chunk_events GROUP BY topic, consumer, outcome ORDER BY messages DESC LIMIT 10"),
)


@dataclass
class Cause:
    """One limit that paused connections, and the effect."""

    limiter: str
    name: str
    """Topic, group, broker, connection or IO thread."""
    cluster: str = ""
    broker: str = ""
    """Where a shared limit holds; empty for a topic's own."""
    pauses: int = 0
    paused_ns: int = 0
    open_pauses: int = 0
    """Pauses that had not ended when the tables were read."""
    topics: set[str] = field(default_factory=set)
    """Topics on the connections that were paused; without the culprit of a topic's own limit."""
    first_ms: int | None = None
    most_used_by: str | None = None
    """The topic that used most of a shared limit."""
    share: float | None = None
    used: str = "messages"
    """What `share` is a share of: messages or bytes."""

    @property
    def key(self) -> tuple[str, str, str, str | None]:
        """The columns by which `shared-limits` identifies a shared limit."""
        return self.cluster, self.broker, self.limiter, self.name


@dataclass(frozen=True)
class Summary:
    """The sums over the tables of a warehouse."""

    causes: tuple[Cause, ...]
    """By paused time, longest first."""
    culprit_ns: int
    shared_ns: int
    collateral_ns: int
    """Paused time of all topics, by whose limit it was (ns)."""
    quarantined: dict[str, int]
    """Records by code of the broken rule; a record may break several."""
    quarantined_records: int

    @property
    def paused_ns(self) -> int:
        """Paused time of all topics (ns)."""
        return self.culprit_ns + self.shared_ns + self.collateral_ns


def summarise(
    throttle_events: Iterable[Row], topic_throttle_stats: Iterable[Row], quarantine: Iterable[Row],
    shared_limits: Iterable[Row] = (),
) -> Summary:
    """The summary of rows of three tables and of the question `shared-limits`; rows may come in
    any order."""
    paused = Counter[str]()
    for row in topic_throttle_stats:
        paused.update({name: row[name] or 0 for name in ("culprit_ns", "shared_ns",
                                                         "collateral_ns")})
    most = {(row["cluster"], row["broker"], row["limiter"], row["limiter_name"]): row
            for row in shared_limits}
    causes = sorted(_causes(throttle_events).values(), key=lambda c: (-c.paused_ns, c.name))
    for cause in causes:
        row = most.get(cause.key, {})
        if row.get("most_used_by") and row["share"]:
            cause.most_used_by, cause.share = row["most_used_by"], row["share"]
            cause.used = row["used"]
    records = {(r["reason_code"], r["source_partition"], r["source_offset"]) for r in quarantine}
    counts = Counter(code for code, _, _ in records)
    return Summary(tuple(causes), *(paused[name] for name in ("culprit_ns", "shared_ns",
                                                              "collateral_ns")),
                   dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
                   len({record[1:] for record in records}))


def _causes(rows: Iterable[Row]) -> dict[tuple[str, ...], Cause]:
    """Joins the first and the last row of each pause; a pause belongs to the limit that began it.

    Rows that neither pause nor resume reads are optional.
    """
    by_connection: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_connection[row["cluster"], row["broker"], row["cnx_id"]].append(row)
    causes: dict[tuple[str, ...], Cause] = {}
    for changes in by_connection.values():
        # Wall time first: the monotonic clock restarts with the broker.
        changes.sort(key=lambda r: (r["ts_wall_ms"] or 0, r["ts_mono_ns"] or 0, r["row_no"]))
        open_since: tuple[Cause, int] | None = None
        for row in changes:
            if row["reads_paused"] and open_since is None:
                cause = _cause_of(row, causes)
                open_since = cause, row["ts_mono_ns"]
            elif not row["reads_paused"] and open_since is not None:
                cause, since = open_since
                cause.paused_ns += max(0, row["ts_mono_ns"] - since)
                cause.open_pauses -= 1
                open_since = None
    return causes


def _cause_of(row: Row, causes: dict[tuple[str, ...], Cause]) -> Cause:
    limiter = row["limiter"]
    topics = {row["topic"], *(row["collateral_topics"] or ())} - {None}
    if limiter == "topic":
        name, where = row["culprit_topic"], ("", "")
        topics -= {name}
    else:
        # rows of earlier versions do not name the limit
        name = row["limiter_name"] or (row["cnx_id"] if limiter == "connection" else row["broker"])
        where = row["cluster"], row["broker"]
    cause = causes.setdefault((limiter, name, *where), Cause(limiter, name, *where))
    cause.pauses += 1
    cause.open_pauses += 1
    cause.topics |= topics
    at = row["ts_wall_ms"]
    if at is not None:
        cause.first_ms = at if cause.first_ms is None else min(cause.first_ms, at)
    return cause


def sentences(summary: Summary) -> list[str]:
    """The main findings as sentences, the longest pause first."""
    if not summary.causes:
        result = ["No connection was paused: every topic stayed within its limits."]
    else:
        result = [_sentence(cause) for cause in summary.causes[:SHOWN]]
    parts = [
        f"{round(100 * ns / summary.paused_ns)} % {words}" for ns, words in (
            (summary.culprit_ns, "for their own limits"),
            (summary.shared_ns, "for limits that they share"),
            (summary.collateral_ns, "for the limits of other topics"),
        ) if ns
    ]
    if parts:
        result.append(f"Paused time, summed over topics, is {duration(summary.paused_ns)}: "
                    f"{_listed(parts)}.")
    return result


def _listed(parts: list[str]) -> str:
    """a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def other_protocol(stats: Iterable[Row], with_exchange: Iterable[Row]) -> str | None:
    """The pauses for the limits of others that the throttle command would have avoided,
    from rows of topic_throttle_stats without and with it; None without any."""
    lost: dict[str, int] = defaultdict(int)
    for row in stats:
        lost[row["topic"]] += row["collateral_ns"] or 0
    victims = [topic for topic, ns in lost.items() if ns]
    if not victims:
        return None
    after = sum(row["collateral_ns"] or 0 for row in with_exchange)
    return (f"With the throttle command of PIP-385, if every client supported it, the "
            f"{_counted(len(victims), 'topic')} paused for the limits of other topics would have "
            f"been paused for {duration(after)} instead of {duration(sum(lost.values()))}, summed "
            "over topics.")


@dataclass
class _User:
    """Sums over the decisions about one user's producer ids."""

    name: str
    ids: set[int] = field(default_factory=set)
    first_ms: int | None = None
    last_ms: int | None = None
    bound: float | None = None
    by_default: bool = False
    over: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By verdict, `rejected` or `throttled`: the times of such batches (ms)."""

    @property
    def batches_over(self) -> int:
        """Batches with a new id over the bound."""
        return sum(map(len, self.over.values()))

    def add(self, row: Row) -> None:
        """Adds one decision."""
        self.ids.add(row["producer_id"])
        at = row["ts_wall_ms"]
        self.first_ms = at if self.first_ms is None else min(self.first_ms, at)
        self.last_ms = at if self.last_ms is None else max(self.last_ms, at)
        over = row["verdict"] in ("rejected", "throttled")
        if over:
            self.over[row["verdict"]].append(at)
        if row["bound_source"] != "none" and (over or self.bound is None):
            self.bound, self.by_default = row["bound"], row["bound_source"] == "default_user"


def producer_id_sentences(decisions: Iterable[Row]) -> list[str]:
    """The users over their bound of new producer ids, from rows of producer_id_decisions; nothing
    without any."""
    users: dict[tuple[str, str], _User] = {}
    for row in decisions:
        users.setdefault((row["cluster"], row["user"]), _User(row["user"])).add(row)
    if not users:
        return []
    total = sum(len(user.ids) for user in users.values())
    over = sorted((u for u in users.values() if u.over), key=lambda u: (-u.batches_over, u.name))
    if not over:
        ids = f"{_counted(total, 'new producer id')} of {_counted(len(users), 'user')}"
        if all(user.bound is None for user in users.values()):
            return [f"{ids}; no user has a bound."]
        return [f"{ids}: no user was over the bound."]
    result = [_over_bound(user, total) for user in over[:NAMED]]
    more = len(over) - NAMED
    result.append(f"{_counted(more, 'other user')} {_was(more)} also over the bound." if more > 0
                else "No other user was over its bound.")
    return [" ".join(result)]


def _over_bound(user: _User, total: int) -> str:
    share = round(100 * len(user.ids) / total)
    words = {"rejected": "would have been rejected", "throttled": "would have been throttled"}
    times = sorted(at for own in user.over.values() for at in own)
    batches = " and ".join(f"{_counted(len(own), 'batch')} {words[verdict]}"
                           for verdict, own in sorted(user.over.items()))
    whose = "the default bound" if user.by_default else "its bound"
    span = (user.last_ms or 0) - (user.first_ms or 0)
    return (f"User {user.name} brought {_counted(len(user.ids), 'new producer id')} in "
            f"{_about(span)}, {share} % of all; {batches} under {whose} of {user.bound:g} "
            f"({_clock(times[0])} to {_clock(times[-1])}).")


def large_message_sentence(
    messages: Iterable[Row], events: Iterable[Row], incomplete: Iterable[Row]
) -> str | None:
    """The number of complete large messages, and why the others are not, from rows of
    chunk_messages, chunk_events and incomplete_messages; None without any."""
    events, incomplete = list(events), list(incomplete)
    fates = _fates(messages, events, incomplete)
    known = set().union(*fates.values())
    if not known:
        return None
    producers = {_message(r): r["producer_name"] for r in incomplete}
    consumers = {_message(r): r["consumer"] for r in events if r["outcome"] in LOST}
    parts = [
        _part(fates["expired"], "never got {its} last chunk", "producer", producers),
        _part(fates["lost"], "{was} given up because of a lost chunk", "consumer", consumers),
        _part(fates["given_up"], "{was} given up for other reasons"),
        _part(fates["waiting"], "{waits} for a chunk", "producer", producers),
    ]
    # A message counts once per subscription; with one of them each, these are the messages.
    once = len({(m[0], m[1], m[3]) for m in known}) == len(known)
    complete = len(fates["complete"])
    arrived = "all" if complete == len(known) > 1 else f"{complete:,}"
    result = ", ".join(part for part in parts if part)
    return (f"Of {_counted(len(known), 'large message' if once else DELIVERY)} {arrived} arrived "
            f"complete{'; ' if result else ''}{result}.")


def backlog_sentences(
    checks: Iterable[Row], subscriptions: Iterable[Row], evictions: Iterable[Row]
) -> list[str]:
    """The topics that were over a quota of their backlog and those that soon will be, from rows of
    backlog_checks, backlog_subscriptions and backlog_evictions; nothing without a check."""
    by_topic: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in checks:
        by_topic[row["cluster"], row["topic"]].append(row)
    if not by_topic:
        return []
    evicted: Counter[tuple[str, str]] = Counter()
    for row in evictions:
        evicted[row["cluster"], row["topic"]] += row["entries_skipped"]
    over = {}
    for topic, rows in by_topic.items():
        rows.sort(key=lambda row: row["pass_ms"])
        if any(row["exceeded_size"] or row["exceeded_time"] for row in rows):
            over[topic] = rows
    worst = sorted(over, key=lambda t: (-sum(map(_is_over, over[t])), t))
    result = [_over_quota(topic[1], over[topic], evicted[topic]) for topic in worst[:NAMED]]
    more = len(worst) - NAMED
    if more > 0:
        result.append(f"{_counted(more, 'other topic')} {_was(more)} also over a quota.")
    result += _quotas_ahead(by_topic, subscriptions)
    return result or [f"{_counted(len(by_topic), 'topic')} with a backlog: none was over a quota, "
                    "and none will be within the hour."]


def _is_over(check: Row) -> bool:
    return bool(check["exceeded_size"] or check["exceeded_time"])


def _over_quota(topic: str, checks: list[Row], evicted: int) -> str:
    """One topic that was over its quota, from its checks in order of time."""
    over = [row for row in checks if _is_over(row)]
    first, last = over[0], over[-1]
    size = first["exceeded_size"]
    limit = size_text(first["limit_bytes"]) if size else f"{first['limit_s']:,} s"
    quota = f"its {'size' if size else 'time'} quota of {limit}"
    since = _clock(first["pass_ms"])
    when = f"the check of {since}" if first is last else f"{len(over):,} checks from {since}"
    if first is not last is not checks[-1]:
        when += f" to {_clock(last['pass_ms'])}"
    begin = f"Topic {short(topic)} was over {quota} at {when}"
    if last["oldest_subscription"] is not None:
        begin += f", because of subscription {last['oldest_subscription']}"
    if first["retention_policy"] == "consumer_backlog_eviction":
        entries = "entry was" if evicted == 1 else "entries were"
        return f"{begin}; {evicted:,} {entries} to be evicted."
    return f"{begin}; its producers were disconnected."


def _quotas_ahead(
    checks: Mapping[tuple[str, str], list[Row]], subscriptions: Iterable[Row]
) -> list[str]:
    """Subscriptions that will reach a quota soon, by the last check of their topic."""
    ahead = []
    for row in subscriptions:
        known = checks.get((row["cluster"], row["topic"]))
        left = row["time_to_quota_s"]
        if known is None or left is None or row["pass_ms"] != known[-1]["pass_ms"]:
            continue
        if not _is_over(known[-1]) and left <= SOON_S:
            ahead.append((row["pass_ms"] + int(left * 1000), row["topic"], row, left))
    ahead.sort(key=lambda found: (found[:2], found[2]["subscription"]))
    return [
        f"Topic {short(topic)} will reach its quota in {_about(int(left * 1000))}, at "
        f"{_clock(at)}, at the current rate of subscription {row['subscription']}"
        f"{_waiting(row['age_s'])}."
        for at, topic, row, left in ahead[:NAMED]
    ]


def _waiting(age_s: int | None) -> str:
    return "" if age_s is None else f" (its oldest message has waited {age_s:,} s)"


def cache_sentence(rows: Iterable[Row]) -> str | None:
    """The reads that the cache would have answered, from rows of cache_stats or one row for each
    policy and size; None without a read. Of several sizes it describes the one at which the
    policies differ most."""
    found: dict[int | None, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in rows:
        if row.get("topic") is None:  # those of topics are in those of their broker
            counts = found[row["max_bytes"]][row["policy"]]
            counts.update({name: row[name] for name in ("hits", "misses", "miss_bytes")})
    read = {size: {policy: c for policy, c in policies.items() if c["hits"] + c["misses"]}
            for size, policies in found.items()}
    read = {size: policies for size, policies in read.items() if policies}
    if not read:
        return None
    size = max(read, key=lambda s: (_spread(read[s]), -1 if s is None else s))
    ranked = sorted(read[size].items(), key=lambda item: (-_hit_ratio(item[1]), item[0]))
    best, counts = ranked[0]
    reads = _counted(counts["hits"] + counts["misses"], "read")
    cache = "A cache without a size limit" if size is None else f"A cache of {size_text(size)}"
    others = ", ".join(f"{policy} {_percent(c)}" for policy, c in ranked[1:])
    storage = size_text(counts["miss_bytes"])
    if others:
        storage += f" instead of {size_text(ranked[-1][1]['miss_bytes'])}"
    return (f"{cache} would have answered {_percent(counts)} of {reads} under {best}"
            f"{' (' + others + ')' if others else ''}; {storage} would have come from storage.")


def _hit_ratio(counts: Mapping[str, int]) -> float:
    return counts["hits"] / (counts["hits"] + counts["misses"])


def _spread(policies: Mapping[str, Mapping[str, int]]) -> float:
    ratios = [_hit_ratio(counts) for counts in policies.values()]
    return max(ratios) - min(ratios)


def _percent(counts: Mapping[str, int]) -> str:
    return f"{100 * _hit_ratio(counts):.1f} %"


def _fates(
    messages: Iterable[Row], events: list[Row], incomplete: list[Row]
) -> dict[str, set[Message]]:
    """The outcome of each large message in each subscription; the first that applies."""
    fates = {"complete": {_message(row) for row in messages}}
    for name, outcomes in (("expired", EXPIRED), ("given_up", GIVEN_UP), ("lost", LOST)):
        fates[name] = {_message(r) for r in events if r["outcome"] in outcomes}
    newest: dict[str, int] = {}
    for row in incomplete:
        newest[row["cluster"]] = max(newest.get(row["cluster"], 0), row["window_start_ms"])
    fates["waiting"] = {
        _message(r) for r in incomplete if r["window_start_ms"] == newest[r["cluster"]]
    }
    known: set[Message] = set()
    for name, own in fates.items():
        fates[name] = own - known
        known |= own
    return fates


def _message(row: Row) -> Message:
    return row["cluster"], row["topic"], row["subscription"], row["uuid"]


def _part(
    own: set[Message], words: str, noun: str = "", names: Mapping[Message, str | None] | None = None
) -> str:
    """A number of messages with their outcome and who was involved; nothing without any."""
    if not own:
        return ""
    one = len(own) == 1
    result = words.format(its="its" if one else "their", was=_was(len(own)),
                        waits="waits" if one else "wait")
    return f"{len(own):,} {result}" + _named(noun, [(names or {}).get(m) for m in own])


def _named(noun: str, names: list[str | None]) -> str:
    """The names that occur most often, in brackets."""
    found = [name for name, _ in Counter(sorted(n for n in names if n)).most_common()]
    if not found:
        return ""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f" ({noun}{'' if len(found) == 1 else 's'} {', '.join(found[:NAMED])}{more})"


def _about(ms: int) -> str:
    """A time in whole minutes; a short one as `duration` formats it."""
    return duration(ms * 1_000_000) if ms < 120_000 else f"{round(ms / 60_000)} min"


def _sentence(cause: Cause) -> str:
    # the time of several pauses is a sum over connections, which may pause at the same time
    summed = ", summed over pauses" if cause.pauses > 1 else ""
    paused = f"{duration(cause.paused_ns)}{summed}"
    times, topics = _counted(cause.pauses, "time"), len(cause.topics)
    if cause.limiter == "topic":
        begin = f"Topic {short(cause.name)} exceeded its limit {times}"
        end = (f"it and {_counted(topics, 'other topic')} were paused for {paused}"
               if topics else f"it was paused for {paused}, and no other topic was")
        return f"{begin}; {end}."
    begin = {
        "resource_group": f"Resource group {cause.name} was over its limit on {cause.broker}",
        "broker": f"Broker {cause.name} was over its own limit",
        "connection": f"Connection {cause.name} had too many requests in flight",
        "io_thread": f"IO thread {cause.name} of {cause.broker} had too many bytes in its buffers",
    }[cause.limiter]
    used = ""
    if cause.most_used_by is not None:
        used = f"; {short(cause.most_used_by)} used most ({percent(cause.share)} of the " \
               f"{cause.used})"
    return (f"{begin} {times}: connections with {_counted(topics, 'topic')} were paused for "
            f"{paused}{used}.")


def short(topic: str) -> str:
    """A topic without its scheme persistent://."""
    return topic.removeprefix("persistent://")


def percent(share: float | None) -> str:
    """A share in whole percent."""
    return f"{round(100 * (share or 0))} %"


def duration(ns: int) -> str:
    """A length of time: 38 s, 0.3 s, 2 min 5 s."""
    seconds = ns / 1e9
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def _counted(n: int, noun: str) -> str:
    if (n, noun) == (1, "time"):
        return "once"
    return counted(n, noun, PLURALS.get(noun, ""))


def _was(n: int) -> str:
    return "was" if n == 1 else "were"


def _clock(ms: int | None) -> str:
    return "" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S")


def show(console: Console, text: str) -> None:
    """Prints a paragraph, indented, in lines without trailing blanks."""
    console.print(
        textwrap.fill(text, console.width, initial_indent="  ", subsequent_indent="  ",
                      break_long_words=False, break_on_hyphens=False),
        markup=False, soft_wrap=True,
    )


def render(summary: Summary, console: Console, others: Iterable[str] = ()) -> None:
    """Prints a summary: sentences, those of other jobs, the table of causes, and the quarantined
    records by reason."""
    for sentence in (*sentences(summary), *others):
        show(console, sentence)
    if summary.causes:
        grid = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        grid.add_column("limit")
        grid.add_column("of", overflow="fold")
        for name in ("pauses", "paused", "topics"):
            grid.add_column(name, justify="right", no_wrap=True)
        grid.add_column("first", justify="right", no_wrap=True)
        for cause in summary.causes[:SHOWN]:
            limit = SHORT_NAMES.get(cause.limiter, cause.limiter)
            grid.add_row(limit, short(cause.name), str(cause.pauses),
                         duration(cause.paused_ns), str(len(cause.topics)),
                         _clock(cause.first_ms))
        console.print()
        console.print(grid)
        hidden = len(summary.causes) - SHOWN
        if hidden > 0:
            console.print(f"and {hidden} more", markup=False)
    records = summary.quarantined_records
    console.print()
    console.print(f"{_counted(records, 'record')} in quarantine, by reason:"
                  if records else "Nothing in quarantine.", markup=False)
    listed = ", ".join(f"{code} {n}" for code, n in summary.quarantined.items())
    if listed:
        show(console, listed)


def render_next_steps(out: Path, console: Console) -> None:
    """Prints where the tables are and queries to try."""
    warehouse = out / "warehouse"
    console.print(f"\nThe tables are in {warehouse} ({PROGRAM} tables lists them). Try:",
                  markup=False, soft_wrap=True)
    for meaning, sql in QUERIES:
        console.print(f"\n  # {meaning}", markup=False)
        console.print(f"  {PROGRAM} query --warehouse {shlex.quote(str(warehouse))} "
                      f'"{sql}"', markup=False, soft_wrap=True)
