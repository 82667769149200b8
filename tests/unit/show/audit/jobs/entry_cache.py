"""The audit of entry_cache: rows of two minutes of a small fleet, and their damage."""

from __future__ import annotations

from typing import Any

from app.config.settings import Settings
from tests.unit.show.audit.jobs.job import (
    RANGE,
    SET,
    Conflict,
    Damage,
    Job,
    Rows,
    Variety,
    add,
    change,
    replace,
    written,
)
from tests.unit.state.cache_trace import numbered, play
from tests.unit.state.trace import record

TABLES = ("cache_stats", "cache_evictions", "cache_reads")
STATS, EVICTIONS, READS = TABLES
TOPICS = ("persistent://t/ns/a", "persistent://t/ns/b")
SECOND_NS = 1_000_000_000
MINUTE_MS = 60_000
CACHES = [
    {"policy": "expected_reads", "max_bytes": 600},
    {"policy": "fifo", "max_bytes": 600},
    {"policy": "lru"},
]
"""Two that are too small for what is added in a burst, and one without a size check."""


def _trace() -> list[dict[str, Any]]:
    """Bursts of entries of two topics; `tail` reads at once, `slow` later, or never."""
    found = [
        record("cursor_state", 0, 0, topic=topic, subscription=name, read_pos="1:0", active=True)
        for topic in TOPICS
        for name in ("slow", "tail")
    ]
    for burst in range(24):
        at = SECOND_NS * 5 * burst
        for i in range(8):
            entry = {"topic": TOPICS[i % 2], "ledger_id": 1, "entry_id": 4 * burst + i // 2}
            found.append(record("entry_added", at + i, entry_bytes=100, **entry))
            tail = {"subscription": "tail", "entry_bytes": 100}
            found.append(record("entry_read", at + 100 + i, **entry, **tail))
            found.append(record("entry_released", at + 200 + i, **entry))
            if burst % 3 == 0:
                slow = {"subscription": "slow", "entry_bytes": 100}
                found.append(record("entry_read", at + SECOND_NS // 2 + i, **entry, **slow))
    found.append(record("entry_invalidated", SECOND_NS * 115 + 300, topic=TOPICS[0], ledger_id=1))
    return sorted(found, key=lambda r: r["ts_mono_ns"])


VARIANTS: dict[str, dict[str, Any]] = {
    "east": {
        "release_event": "entry_released",
        "variants": CACHES,
        "extra_outputs": ["cache_evictions", "cache_reads"],
    }
}


def _decided(**params: Any) -> dict[str, Rows]:
    parameters = Settings.model_validate({"entry_cache": params}).job_params("entry_cache")
    records = [{**r, "seq": n} for n, r in enumerate(_trace())]
    end_ms = max(r["ts_wall_ms"] for r in records) + 2 * MINUTE_MS
    return play([numbered(records)], parameters, until_ms=end_ms)


KEY = "cluster,broker,ts_wall_ms,ts_mono_ns,row_no"
RATIO, EMPTY = "hit_ratio is hits / reads", "an empty cache has no bytes"
OF_BROKER = "only a broker's row has what only a broker has"
LEVELS = "what is wanted is not evictable, and what is used holds both"
WANTED = "no more is evicted wanted than is evicted"
MOST = "the most used bytes of a window are not below those at its end"
TRIGGER = "a cache ends its window within its trigger"
END, ALIGNED = "a window is written at its end", "windows are aligned to the epoch"
SUM, FLOW = "a broker's row is the sum of its topics", "a cache holds what came in and has not left"
RULE = "a rule is its cause, with what was amiss"
PART = "an entry is part of what was used"
CHECKED = "nothing goes by size without a size check"
ABOVE = "what goes by size goes above the trigger"
HIT, POSITION = "a rule says whether it was a hit", "positions are ledger:entry"
READ = "hits and misses are the reads of the window"
COUNTED = "a window counts its evictions"

# Row 0 of the statistics is the first cache's (600 bytes) for its broker, row 1 that of one of its
# topics; the first entry that is evicted goes by size with reads expected, the first read is a miss.
DAMAGE: dict[str, list[Damage]] = {
    STATS: [
        (0, {"policy": "random"}, [(SET, "policy")]),
        (0, {"job": "backlog"}, [(SET, "job")]),
        (0, {"row_no": -1}, [(RANGE, "row_no")]),
        (0, {"inserted": -1}, [(RANGE, "inserted")]),
        (0, {"hit_ratio": 0.5}, [RATIO]),
        (0, {"hit_ratio": None}, [RATIO]),
        (0, {"hit_ratio": 1.5}, [(RANGE, "hit_ratio"), RATIO]),
        (0, {"passes_size": None}, [OF_BROKER]),
        (1, {"max_used_bytes": 600}, [OF_BROKER]),
        (0, {"wanted_bytes": 401}, [LEVELS]),
        (0, {"non_evictable_bytes": 401}, [LEVELS]),
        (0, {"entries": 0}, [EMPTY]),
        (0, {"evicted_wanted": 221}, [WANTED]),
        (0, {"max_used_bytes": 399}, [MOST]),
        (0, {"used_bytes": 589}, [TRIGGER]),
        (0, {"rule": "closed"}, [END]),
        (0, {"window_ms": 59_999}, [END, ALIGNED]),
    ],
    EVICTIONS: [
        (0, {"cause": "age"}, [(SET, "cause"), RULE]),
        (0, {"cause": "time"}, [RULE]),
        (0, {"rule": "size+unlucky"}, [(SET, "rule"), RULE]),
        (0, {"rule": "size+never_wanted"}, [RULE]),
        (0, {"expected_remaining": 0}, [RULE]),
        (0, {"expected_remaining": None}, [RULE]),
        (0, {"age_ns": -1}, [(RANGE, "age_ns")]),
        (0, {"entry_bytes": 601}, [PART]),
        (0, {"max_bytes": None}, [CHECKED]),
        (0, {"used_bytes_before": 588}, [ABOVE]),
    ],
    READS: [
        (0, {"rule": "hit"}, [HIT]),
        (0, {"rule": "seen"}, [(SET, "rule")]),
        (0, {"hit": True}, [HIT]),
        (0, {"reader_kind": "idle"}, [(SET, "reader_kind")]),
        (0, {"position": "1"}, [POSITION]),
    ],
}


def _entries_from_nowhere(rows: Rows) -> Rows:
    """One entry more at the end of a broker's second window."""
    (place,) = [
        place
        for place, r in enumerate(rows)
        if place and r["policy"] == "expected_reads" and r["topic"] is None and r["inserted"] > 0
    ]
    return add(place, "entries")(rows)


JOB = Job(
    "entry_cache",
    TABLES,
    written("entry_cache", _decided, VARIANTS),
    keys=dict.fromkeys(TABLES, (KEY,)),
    variety=[
        Variety(EVICTIONS, lambda r: r["cause"], {"time", "size", "invalidated"}),
        Variety(
            EVICTIONS,
            lambda r: r["rule"].partition("+")[2],
            {"", "extended_out", "never_wanted"},
        ),
        Variety(
            READS,
            lambda r: (r["hit"], r["reader_kind"]),
            {(True, "tail"), (True, "catch_up"), (False, "tail"), (False, "catch_up")},
        ),
    ],
    damage=DAMAGE,
    sums=[
        *(
            Conflict(
                f"a broker counts other {column} than its topics",
                {STATS: add(1, column)},
                {STATS: {SUM: 1}},
            )
            for column in ("hits", "misses", "inserted", "evicted_time", "used_bytes")
        ),
        Conflict(
            "entries come from nowhere",
            {STATS: _entries_from_nowhere},
            {STATS: {FLOW: 1}},
        ),
    ],
    conflicts=[
        *(
            Conflict(
                f"a window counts reads of another {column}",
                {READS: change(0, **{column: value})},
                {STATS: {READ: windows}},
            )
            for column, value, windows in (
                ("hit", True, 1),
                ("broker", "b2", 1),
                ("policy", "fifo", 2),
                ("ts_wall_ms", 0, 1),
            )
        ),
        *(
            Conflict(
                f"a window counts evictions of another {column}",
                {EVICTIONS: change(0, **{column: value})},
                {STATS: {COUNTED: 1}},
            )
            for column, value in (
                ("cause", "time"),
                ("cause", "invalidated"),
                ("broker", "b2"),
                ("expected_remaining", 0),
            )
        ),
        Conflict(
            "tables that are off are not missed",
            {EVICTIONS: replace([]), READS: replace([])},
            {STATS: {}},
        ),
    ],
)
