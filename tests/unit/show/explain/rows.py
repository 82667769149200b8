"""A warehouse of what the cores decide about small traces, a cluster for each trace."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from state.jobs import DECLARED
from tests.support.semantics_chunks import UPSTREAM, chunk
from tests.support.throttle_rows import write
from tests.unit.show.audit.jobs import JOBS
from tests.unit.state import cache_trace, chunk_trace, client_quota_trace
from tests.unit.state import entry_cache_input as caches
from tests.unit.state import trace as throttling
from tests.unit.state.trace import START_MS, START_NS, publish, record

MS = 1_000_000
ORDERS, MAIL = "persistent://t/ns/orders", "persistent://t/ns/mail-partition-3"
HASH = "abc"
Rows = dict[str, list[dict[str, Any]]]


def document(scope: str, name: str, **limits: Any) -> str:
    return json.dumps({"scope": scope, "name": name, "limits": limits})


LIMIT = document("topic", "t/ns/orders", publishRateInMsgs=100)
MAIL_LIMIT = document("namespace", "t/ns", publishRateInMsgs=1000)
WORKED = [
    publish(0, MAIL, producer=2, seq=0),
    publish(0, ORDERS, messages=250, seq=1),
    publish(200 * MS, ORDERS, seq=2),
    publish(300 * MS, MAIL, producer=2, messages=10, seq=3),
]
"""The worked example of docs/semantics/rate_limits.md."""


def opened(supports: bool) -> dict[str, Any]:
    return record(
        "connection_opened", 0, seq=-1, cnx_id="c1", supports_throttle=supports, io_thread=0
    )


def added(at_ns: int, entry: int, size: int = 100, topic: str = ORDERS) -> dict[str, Any]:
    return record(
        "entry_added",
        at_ns,
        seq=90 + entry,
        topic=topic,
        ledger_id=1,
        entry_id=entry,
        entry_bytes=size,
    )


OPEN, CLOSED = 1_000, 60_000
TRACES: dict[str, tuple[list[dict[str, Any]], list[str], dict[str, Any], int]] = {
    "worked": (WORKED, [MAIL_LIMIT, LIMIT], {}, CLOSED),
    "open": (WORKED, [LIMIT], {}, OPEN),
    "group": (
        WORKED,
        [
            document("namespace", "t/ns", resource_group="g"),
            document("resource_group", "g", publishRateInMsgs=200),
        ],
        {},
        CLOSED,
    ),
    "broker": (
        WORKED,
        [
            document(
                "broker",
                "*",
                brokerPublisherThrottlingMaxMessageRate=100,
                brokerPublisherThrottlingMaxByteRate=5000,
            )
        ],
        {},
        CLOSED,
    ),
    "flight": (
        [
            *(publish(i * MS, ORDERS, seq=i) for i in range(1, 5)),
            added(10 * MS, 1),
            added(20 * MS, 2),
            added(30 * MS, 3),
        ],
        [document("broker", "*", maxPendingPublishRequestsPerConnection=4)],
        {},
        CLOSED,
    ),
    "buffer": (
        [
            opened(False),
            publish(1, ORDERS, size=2_000_000, seq=1),
            publish(2, MAIL, producer=2, size=2_000_000, seq=2),
            added(10 * MS, 1, 2_000_000),
            added(20 * MS, 2, 2_000_000, MAIL),
        ],
        [document("broker", "*", maxMessagePublishBufferSizeInMB=3, numIOThreads=1)],
        {},
        CLOSED,
    ),
    "closes": (
        [*WORKED, record("connection_closed", 400 * MS, seq=9, cnx_id="c1")],
        [LIMIT],
        {},
        CLOSED,
    ),
    "lost": (
        [*WORKED, record("gap", 400 * MS, seq=9, gap_from_mono_ns=START_NS + 300 * MS)],
        [LIMIT],
        {},
        CLOSED,
    ),
    "changes": (
        [
            *WORKED,
            record(
                "policy",
                400 * MS,
                seq=9,
                policy_json=document("topic", "t/ns/orders", publishRateInMsgs=7),
            ),
        ],
        [LIMIT],
        {},
        CLOSED,
    ),
    "removes": (
        [*WORKED, record("policy", 400 * MS, seq=9, policy_json=document("topic", "t/ns/orders"))],
        [LIMIT],
        {},
        CLOSED,
    ),
    "observed": (
        [
            opened(True),
            *WORKED,
            record("throttle_receipt", 40 * MS, seq=8, cnx_id="c1", request_id=1),
            record(
                "send_timeout",
                350 * MS,
                seq=9,
                cnx_id="c1",
                topic=ORDERS,
                producer_id=1,
                sequence_id=17,
            ),
        ],
        [LIMIT],
        {"protocol": "pip385", "receipt_model": "observed"},
        CLOSED,
    ),
    "seen": (
        [
            *WORKED[:3],
            record("reads_paused", 201 * MS, seq=8, cnx_id="c1"),
            WORKED[3],
            record("reads_resumed", 500 * MS, seq=9, cnx_id="c1"),
            *(
                record(
                    kind,
                    (510 + 10 * i + (5 if kind == "reads_resumed" else 0)) * MS,
                    seq=20 + 2 * i + (kind == "reads_resumed"),
                    cnx_id="c2",
                )
                for i in range(5)
                for kind in ("reads_paused", "reads_resumed")
            ),
            record("connection_opened", 505 * MS, seq=10, cnx_id="c2", io_thread=0),
        ],
        [LIMIT],
        {},
        CLOSED,
    ),
    "supported": (
        [opened(True), *WORKED],
        [LIMIT],
        {"protocol": "pip385", "receipt_model": "supported"},
        CLOSED,
    ),
    "unknowing": (
        [opened(False), *WORKED],
        [LIMIT],
        {"protocol": "pip385", "receipt_model": "supported"},
        CLOSED,
    ),
}
"""Records, policies, parameters and the end of each trace of rate_limits, by cluster."""
LARGE = "persistent://t/ns/large"


def part(second: int, uuid: str, number: int, of: int, entry: int, **more: Any) -> dict[str, Any]:
    return {**chunk(second, uuid, number, of, entry), "topic": LARGE, **more}


def event(kind: str, second: int, **more: Any) -> dict[str, Any]:
    return {
        "event_type": kind,
        "source_feed": "contract",
        "cluster": "c",
        "broker": "b",
        "ts_mono_ns": None,
        "ts_wall_ms": START_MS + second * 1000,
        "topic": LARGE,
        "subscription": "s",
        "consumer": "c1",
        **more,
    }


CHUNKS = chunk_trace.numbered(
    [
        part(0, "r-1", 0, 3, 0),
        part(1, "r-1", 0, 3, 0),
        part(2, "s-1", 0, 3, 1),
        part(3, "s-1", 0, 3, 2),
        part(4, "s-1", 1, 3, 3),
        part(5, "s-1", 1, 3, 4),
        part(6, "s-1", 1, 3, 3),
        part(7, "t-1", 0, 3, 5),
        part(8, "t-1", 1, 2, 6),
        part(9, "u-1", 0, 2, 7),
        part(10, "u-1", 1, 2, 8, entry_bytes=500),
        event("ack", 11, ledger_id=7, entry_id=9),
        part(12, "v-1", 0, 2, 9),
        part(13, "w-1", 1, 2, 10, subscription="many", sub_type="shared"),
        event("consumer_closed", 14),
    ]
)
"""Chunks that come twice, do not fit, are acknowledged, belong to nobody or lose their consumer."""
UNSEEN = chunk_trace.numbered(
    [
        part(0, "x-1", 0, 2, 0),
        event("gap", 5, topic=None, subscription=None, consumer=None),
        part(6, "x-1", 1, 2, 1),
    ]
)
"""A message that a gap divides."""
LOST = {
    "cluster": "lost",
    "source_feed": "contract",
    "seq": 9,
    "ts_mono_ns": START_NS + 400 * MS,
    "gap_from_mono_ns": START_NS + 300 * MS,
    "dropped": 5,
}
GAPS = [
    {
        **LOST,
        "broker": "b1",
        "ts_wall_ms": START_MS + 400,
        "gap_from_wall_ms": START_MS + 300,
        "job": "rate_limits",
        "blind_until_ms": START_MS + 10_400,
    },
    {
        **LOST,
        "broker": "b",
        "ts_wall_ms": START_MS + 5000,
        "gap_from_wall_ms": None,
        "dropped": None,
        "job": "chunks",
        "blind_until_ms": START_MS + 125_000,
    },
]


def of_group(group: str, row_no: int, **columns: Any) -> dict[str, Any]:
    about = {"topic": "persistent://k/g/payments", "partition": 3, "committed": 1200}
    times = {"ts_wall_ms": START_MS, "pass_ms": START_MS}
    place = {"job": "backlog", "cluster": "kafka", "broker": "k1", "params_hash": HASH}
    return {**place, **about, **times, "group": group, "rule": "poll", "row_no": row_no, **columns}


STATES = (
    "committed",
    "ahead",
    "no_offset",
    "gone",
    "unknown_group",
    "rebalancing",
    "open_transaction",
)
GROUPS: Rows = {
    "group_lag": [
        of_group(
            "billing",
            1,
            state="committed",
            lag=300,
            log_end=1500,
            age_state="known",
            age_s=90,
            lag_growth=2.5,
            commit_rate=10.0,
            time_to_loss_s=4000.0,
            client_id="billing-1",
            client_host="consumer.example",
        ),
        of_group(
            "billing",
            2,
            partition=4,
            state="committed",
            lag=0,
            log_end=1200,
            age_state="nothing_unread",
        ),
        of_group("archive", 3, state="committed", lag=-4, log_end=1196),
        of_group(
            "waiting",
            5,
            state="open_transaction",
            lag=6,
            log_end=1206,
            age_s=40,
            age_state="known",
            lag_growth=0.5,
            lag_records=5,
            commit_rate=0.0,
        ),
        of_group(
            "archive",
            4,
            partition=4,
            state="committed",
            lag=1,
            log_end=1201,
            age_state="first_seen",
            age_s=5,
            time_to_loss_s=0.0,
        ),
        of_group(
            "jobs",
            6,
            partition=5,
            state="committed",
            lag=300,
            log_end=1500,
            lag_records=7,
            age_state="known",
            age_s=60,
            group_type="share",
        ),
    ],
    "group_states": [
        of_group(
            "billing",
            number,
            state=state,
            log_end=1500,
            unread=number,
            topic=None if number == 4 else "persistent://k/g/payments",
            partition=None if number > 2 else 3,
        )
        for number, state in enumerate(STATES)
    ]
    + [
        of_group("jobs", 30, state="empty", topic=None, partition=None, group_type="share"),
        of_group(
            "billing",
            31,
            state="rebalancing",
            topic=None,
            partition=None,
            group_type="consumer",
            group_epoch=12,
            assignment_epoch=11,
        ),
    ]
    + [
        of_group("billing", n, state="open_transaction", log_end=1500, producer_id=7, **named)
        for n, named in (
            (7, {}),
            (8, {"transactional_id": "payments-1", "transaction_start_ms": START_MS - 60_000}),
        )
    ],
    "lost_messages": [
        of_group("billing", 1, offsets=12, from_offset=9, to_offset=21, first_sight=False),
        of_group("archive", 2, offsets=1, from_offset=0, to_offset=1, first_sight=True),
    ],
}
"""A group that lags and has lost, and one that is ahead."""
CACHE = cache_trace.numbered(
    [
        caches.cursor(0),
        caches.added(1, 0),
        caches.added(2, 1),
        caches.read(3, 0),
        caches.read(4, 1, "other"),
        caches.read(5, 7),
    ]
)

LIMITS = [
    client_quota_trace.quota("ann", producer_byte_rate=100, controller_mutation_rate=1),
    client_quota_trace.quota("ann", "audit", producer_byte_rate=10),
    client_quota_trace.quota(None, "web", consumer_byte_rate=50, request_percentage=400),
    client_quota_trace.quota("<default>", "<default>", request_percentage=200),
    client_quota_trace.quota("fay", consumer_byte_rate=100),
]
"""Of a user, which its clients share, of a client, which its users share, of any user with any
client, and of a user of whom only the metrics of brokers tell."""


def _measured(at_ms: int, throttle_ms: int | None, **more: Any) -> dict[str, Any]:
    rate = {"quota_type": "fetch", "value_milli": 130_000, "bound_milli": 100_000}
    average = None if throttle_ms is None else 1000 * throttle_ms
    who = {"principal": "fay", "client_id": ""}
    return client_quota_trace.other(
        "client_rate", at_ms, **who, **rate, throttle_avg_milli=average, **more
    )


def _requests() -> list[dict[str, Any]]:
    """Of Kafka's clients: ann's batch uses up the limit that her other clients share."""
    ask = client_quota_trace.request

    def produce(at_ms: int, client: str, size: int, **topics: int) -> dict[str, Any]:
        amounts = {"charged_bytes": size, "topic_bytes": json.dumps(topics)}
        return ask(at_ms, user="ann", client_id=client, **amounts)

    records = [
        produce(0, "live", 300, t=200, u=90),
        produce(1000, "batch", 9000, u=8990),
        produce(2000, "live", 200, t=190),
        produce(3000, "audit", 500, t=490),
        produce(61_000, "batch", 9000, u=8990),
        produce(62_000, "live", 400, t=300, u=90),
        ask(63_500, "CREATE_TOPICS", user="ann", client_id="live", mutations=12),
        ask(64_000, "CREATE_TOPICS", user="ann", client_id="live", mutations=1),
        ask(64_500, "METADATA", user="bob", client_id="cli", handler_time_ns=3 * 10**9),
        *(
            ask(65_000 + n, "FETCH", user=user, client_id="web", charged_bytes=400, topic_bytes=t)
            for n, (user, t) in enumerate((("bob", '{"u":300}'), ("cid", '{"t":390}')))
        ),
        *(
            ask(at, "HEARTBEAT", user=user, client_id="web", handler_time_ns=at)
            for at, user in ((65_100, "bob"), (65_200, "cid"))
        ),
        _measured(66_000, None),
        _measured(125_000, 40),
        _measured(140_000, 50, broker="b2"),
        _measured(185_000, 60),
    ]
    return client_quota_trace.numbered(records)


def of_job(job: str, cluster: str, rows: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    about = {
        "job": job,
        "params_hash": HASH,
        "cluster": cluster,
        "switches": [(name, "") for name in DECLARED[job].switches],
        **more,
    }
    return [{**row, **about} for row in rows]


@cache
def throttled() -> Rows:
    """Rows of rate_limits, and the policies of the traces as the archive has them."""
    found: Rows = {"events": []}
    for cluster, (records, policies, params, drain_ms) in TRACES.items():
        played = throttling.play([records], params, policies, drain_ms)
        for table, rows in played.items():
            if table != "quarantine":
                found.setdefault(table, []).extend(of_job("rate_limits", cluster, rows))
        found["events"] += [
            {**row, "cluster": cluster, "source_partition": cluster, "source_offset": number}
            for number, row in enumerate(records)
            if row["event_type"] == "policy"
        ]
    return found


def fill(warehouse: str) -> None:
    """Write everything that the cores decide into a warehouse."""
    rows: Rows = {table: list(mine) for table, mine in throttled().items()}
    for name in ("backlog", "chunks", "producer_ids"):
        rows |= {table: JOBS[name].rows_of(table) for table in JOBS[name].tables}
    cached = cache_trace.play(
        [CACHE], {**caches.READS, "max_bytes": 1000}, until_ms=START_MS + 120_000
    )
    quotas = client_quota_trace.play([_requests()], policies=LIMITS, until_ms=START_MS + 240_000)
    rows |= {
        table: of_job("client_quotas", "quotas", mine)
        for table, mine in quotas.items()
        if table != "quarantine"
    }
    rows["events"] += [
        {
            **client_quota_trace.policy(61_500, text),
            "cluster": "quotas",
            "source_partition": "q",
            "source_offset": number,
        }
        for number, text in enumerate(LIMITS)
    ]
    for table, mine in cached.items():
        if table != "quarantine":
            rows[table] = of_job("entry_cache", "cached", mine)
    rows["events"] += [
        {
            "event_type": "publish",
            "cluster": "worked",
            "broker": "b1",
            "cnx_id": "quiet-1",
            "principal": "User:eve",
            "topic": "persistent://t/ns/quiet",
            "ts_wall_ms": START_MS,
            "source_partition": "z",
            "source_offset": 0,
        },
    ]
    rows["coverage_gaps"] = GAPS
    for cluster, chunks, defects in (
        ("chunks", CHUNKS, []),
        ("defects", CHUNKS, UPSTREAM),
        ("lost", UNSEEN, []),
    ):
        chunked = chunk_trace.play([chunks], {"defects": defects}, until_ms=START_MS + 180_001)
        for table, mine in chunked.items():
            if table != "quarantine":
                rows[table] = rows[table] + of_job("chunks", cluster, mine)
    rows |= GROUPS
    for table, mine in rows.items():
        if mine:
            write(warehouse, table, mine)
