"""Sentences about a client of Kafka: which limit applies to it and why, since when and where, who
shares it, and the topics of the bytes."""

from __future__ import annotations

from app.jobs.client_quotas.explain.levels import LEVELS, SEARCHED, UNITS
from app.show.explain.ask import USER, Ask, ConfiguredPolicies
from app.show.explain.nearby_rows import SnapshotReader, inlined, used
from app.show.explain.sentence import Draft, Quoted, Row, Sentence
from app.terminal.counts import all_of

STATS, DECISIONS, USAGE = "client_quota_stats", "client_quota_decisions", "client_usage"
_AS_ENTITY = (
    "t.cluster = $of_cluster AND t.quota_type = $quota_type AND t.user = $user"
    " AND t.client = $client"
)
# Of several entities that the tags of a request could be, the one with more of them is charged.
_LIMITS = """
QUALIFY row_number() OVER (
  PARTITION BY t.cluster, t.quota_type, CASE WHEN $client_id IS NULL THEN t.client END
  ORDER BY t.window_start_ms <= $at DESC, t.window_start_ms DESC,
    (t.user <> '')::INT + (t.client <> '')::INT DESC, t.user DESC, t.utilisation DESC NULLS LAST,
    t.basis DESC, t.broker, t.row_no
) = 1
ORDER BY t.utilisation DESC NULLS LAST, t.cluster, t.quota_type, t.client LIMIT $rows
"""
Told = tuple[Draft, str]
_PAUSE_MS = 60_000
"""A client that was not throttled for so long is throttled anew."""
_NAMED = 3
"""Who shares a limit, and topics, that a sentence names."""
_UNKNOWN = "No row has this client id; a request with it would be charged as follows."
_APIS = {"produce": "'PRODUCE'", "fetch": "'FETCH', 'SHARE_FETCH'"}


def sentences(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
    """Of each quota of the client at the moment: which limit applies and why, whether it throttles, who
    shares it, and the topics of the bytes."""
    if not reader.has(STATS):
        return []
    inside = "t.ts_wall_ms > $lo AND t.window_start_ms < $hi"
    rows = reader.rows(STATS, f"{ask.where(STATS)} AND {inside}", ask.params, _LIMITS)
    known = ask.client_id is None or any(
        _has_client(reader, ask, table) for table in (STATS, USAGE)
    )
    found = []
    for place, row in enumerate(rows):
        about = {
            **ask.params,
            "of_cluster": row["cluster"],
            "quota_type": row["quota_type"],
            "user": row["user"],
            "client": row["client"],
            "window": row["window_start_ms"],
            "bound": row["bound"],
            "level": row["bound_level"],
        }
        draft, text = _limit_in_force(reader, row, about)
        told: list[Told | None] = [(draft, text if known else f"{_UNKNOWN} {text}")]
        decided = _throttled(reader, ask, row, about) if reader.has(DECISIONS) else None
        told.append(decided or _measured(reader, row, about))
        told.append(_shares(reader, row, about))
        if reader.has(USAGE):
            told.append(_topics(reader, ask, row, about))
        found += [
            draft.sentence(text, (place, at), row["window_start_ms"], row["rule"])
            for at, (draft, text) in enumerate(one for one in told if one is not None)
        ]
    return found


def _has_client(reader: SnapshotReader, ask: Ask, table: str) -> bool:
    """Whether a table has the client id, of any user."""
    if not reader.has(table):
        return False
    column = "client" if table == STATS else "client_id"
    where = f"t.{column} = $client_id AND {ask.place}"
    return bool(reader.summary(table, "count(*) AS rows", where, ask.params)["rows"])


def _who(row: Row) -> str:
    who = [f"user {row['user']}"] if row["user"] else []
    return " with ".join([*who, *([f"client {row['client']}"] if row["client"] else [])])


def _limit_in_force(reader: SnapshotReader, row: Row, about: dict[str, object]) -> Told:
    """The limit, the levels before it that have none, since when, and the brokers."""
    draft = Draft()
    limit = draft.quote("limit", row)
    since = draft.quote(
        "since",
        reader.summary(
            STATS,
            "min(t.window_start_ms) AS since_ms, list_sort(list(DISTINCT t.broker)) AS brokers",
            f"""{_AS_ENTITY} AND t.window_start_ms <= $window AND t.window_start_ms > coalesce((
              SELECT max(t.window_start_ms) FROM {STATS} AS t WHERE {_AS_ENTITY}
                AND t.window_start_ms < $window
                AND (t.bound, t.bound_level) IS DISTINCT FROM ($bound, $level)), -1)""",
            about,
        ),
    )
    if row["bound"] is None:
        text = f"No {row['quota_type']} quota holds for {_who(row)}: no level has one"
    else:
        levels = list(SEARCHED)
        before = levels[: levels.index(row["bound_level"])]
        text = f"The {row['quota_type']} quota of {_who(row)} is {_amount(limit)},"
        text += f" {LEVELS[row['bound_level']]}"
        if before:
            text += f"; none is set for {all_of([SEARCHED[each] for each in before], 'nor')}"
    text += f". It is so since {since.since_ms:day} at least, on {all_of(since['brokers'])}"
    if row["utilisation"] is not None:
        text += f"; {limit.broker} used {limit.utilisation:pct} of it in the {limit.window_ms:ms}"
        text += f" from {limit.window_start_ms:clock}"
    return draft, text


def _throttled(reader: SnapshotReader, ask: Ask, row: Row, about: dict[str, object]) -> Told | None:
    """How often the client was throttled by it, since when and where."""
    where = f"{ask.where(DECISIONS)} AND {_AS_ENTITY} AND t.ts_wall_ms < $hi"
    begins = f"""SELECT max(ts_wall_ms) AS since_ms FROM (
      SELECT t.ts_wall_ms, t.ts_wall_ms - lag(t.ts_wall_ms) OVER (ORDER BY t.ts_wall_ms) AS pause_ms
      FROM {DECISIONS} AS t WHERE {where}
    ) WHERE coalesce(pause_ms > {_PAUSE_MS}, true)"""
    ((since),) = (found["since_ms"] for found in reader.dicts(begins, used(begins, about)))
    if since is None:
        return None
    draft = Draft()
    times = draft.quote(
        "throttled",
        reader.summary(
            DECISIONS,
            "count(*) AS requests, min(t.ts_wall_ms) AS first_ms, max(t.ts_wall_ms) AS last_ms,"
            " sum(t.throttle_ms)::BIGINT AS throttle_ms, max(t.throttle_ms) AS longest_ms,"
            " list_sort(list(DISTINCT t.broker)) AS brokers",
            f"{where} AND t.ts_wall_ms >= $since",
            {**about, "since": since},
        ),
    )
    verb, at = "were", f"from {times.first_ms:clock} to {times.last_ms:clock}"
    if times["requests"] == 1:
        verb, at = "was", f"at {times.first_ms:clock}"
    text = f"{times.requests:n request} of {_asked(ask, row)} {verb} over the {row['quota_type']} quota"
    text += f" {at} on {all_of(times['brokers'])}: {times.throttle_ms:ms} of throttle time"
    if times["requests"] > 1:
        text += f" in all, {times.longest_ms:ms} at most for one"
    return draft, text


def _measured(reader: SnapshotReader, row: Row, about: dict[str, object]) -> Told | None:
    """In how many windows without a pause the metrics of brokers show that it throttles."""
    where = f"{_AS_ENTITY} AND t.basis = 'metrics' AND t.window_start_ms <= $window"
    draft = Draft()
    found = draft.quote(
        "measured",
        reader.summary(
            STATS,
            "count(DISTINCT t.window_start_ms) AS windows, min(t.window_start_ms) AS first_ms,"
            " max(t.window_start_ms + t.window_ms) AS last_ms,"
            " list_sort(list(DISTINCT t.broker)) AS brokers",
            f"""{where} AND t.throttled > 0 AND t.window_start_ms > coalesce((
              SELECT max(window_start_ms) FROM (
                SELECT t.window_start_ms FROM {STATS} AS t WHERE {where}
                GROUP BY t.window_start_ms HAVING max(t.throttled) = 0)), -1)""",
            about,
        ),
    )
    if not found["windows"]:
        return None
    text = f"The metrics of {all_of(found['brokers'])} show that it throttles, in"
    text += f" {found.windows:n window} from {found.first_ms:clock} to {found.last_ms:clock}"
    return draft, f"{text}: how often and for how long is in the request log of a broker"


def _shares(reader: SnapshotReader, row: Row, about: dict[str, object]) -> Told | None:
    """Who shares the limit, by what each of them used in the window, or why that is not known."""
    shared = row["bound"] is not None and bool(row["user"]) != bool(row["client"])
    if not shared or row["quota_type"] == "controller_mutation":
        return None
    if row["user"]:
        sharer, entity, has_own = "t.client_id", f"{USER} = $user", "s.user = $user AND s.client ="
        has_own += " coalesce(t.client_id, '') AND s.client <> ''"
    else:
        sharer, entity = "t.principal", "t.client_id = $client"
        has_own = f"s.user = {USER} AND s.client IN ('', $client)"
    entity += f""" AND NOT EXISTS (
      SELECT 1 FROM {STATS} AS s WHERE s.cluster = $of_cluster AND s.quota_type = $quota_type
        AND s.window_start_ms = $window AND {has_own})"""
    api = _APIS.get(row["quota_type"])
    amount = "handler_time_ms" if api is None else "bytes"
    where = f"{entity} AND {_api(api)}"
    rows = _largest(reader, sharer, amount, where, about) if reader.has(USAGE) else []
    draft, kind = Draft(), "clients" if row["user"] else "users"
    if not rows and row["basis"] == "metrics":
        draft.quote("limit", row)
        text = f"Which {kind} share the {row['quota_type']} quota of {_who(row)} is not known: the"
        return draft, f"{text} metrics of brokers do not tell them apart; a request log does"
    if len(rows) < 2:
        return None
    what = "request time" if api is None else "bytes"
    parts = [
        f"{each['name']} with {each.share:pct}"
        for each in (draft.quote(f"share_{n}", row) for n, row in enumerate(rows, 1))
    ]
    return draft, (
        f"The {kind} that share the {row['quota_type']} quota of {_who(row)}, by their {what} in this"
        f" window: {all_of(parts)}"
    )


def _topics(reader: SnapshotReader, ask: Ask, row: Row, about: dict[str, object]) -> Told | None:
    """The topics of the client's bytes in the window."""
    api = _APIS.get(row["quota_type"])
    if api is None:
        return None
    where = f"{ask.where(USAGE)} AND t.topic IS NOT NULL AND {_api(api)}"
    where += " AND ($client = '' OR t.client_id = $client)"
    rows = _largest(reader, "t.topic", "bytes", where, about)
    if not rows:
        return None
    draft = Draft()
    parts = [
        f"{each['name']} {each.share:pct}"
        for each in (draft.quote(f"topic_{n}", row) for n, row in enumerate(rows, 1))
    ]
    verb = "sent to" if row["quota_type"] == "produce" else "fetched from"
    return (
        draft,
        f"Topics that {_asked(ask, row)} {verb} in this window, by bytes: {all_of(parts)}",
    )


def _asked(ask: Ask, row: Row) -> str:
    return _who(row) if ask.client_id is None else f"client {ask.client_id}"


def _api(api: str | None) -> str:
    return "true" if api is None else f"t.api IN ({api})"


def _largest(
    reader: SnapshotReader, name: str, amount: str, where: str, about: dict[str, object]
) -> list[Row]:
    """The largest users of the window, each with its share."""
    sql = f"""SELECT coalesce({name}, '') AS name, sum(t.{amount})::DOUBLE AS used,
      used / sum(used) OVER () AS share FROM {USAGE} AS t
    WHERE t.cluster = $of_cluster AND t.window_start_ms = $window AND {where}
    GROUP BY ALL HAVING used > 0 ORDER BY used DESC, name LIMIT {_NAMED}"""
    found = reader.dicts(sql, used(sql, about))
    return [
        Row(USAGE, {}, each, f"SELECT * FROM ({inlined(sql, about)}) LIMIT 1 OFFSET {at}")
        for at, each in enumerate(found)
    ]


def _amount(limit: Quoted) -> str:
    unit = UNITS[limit["quota_type"]]
    return f"{limit.bound:n} % of a thread" if unit == "%" else f"{limit.bound:n {unit}} per s"
