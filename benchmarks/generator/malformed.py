"""One or more malformed records for every code of the event contract that a record alone can earn.

A template is a kind, changed common columns and the rest of the line; the clocks and the number of
the record around it are those of a good one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np

from benchmarks.generator.fleet import Fleet
from benchmarks.generator.lifecycle import FIRST_PUBLISH_NS
from benchmarks.generator.plan import SECOND
from benchmarks.generator.streams import INTERCEPTOR, stream_of
from benchmarks.generator.trace_rows import NULL, PLACE, make_rows

ENTRY = {"ledger_id": 70001, "entry_id": 7}
DELIVERY = {"subscription": "main", "consumer": "main-1", **ENTRY}
CHUNK = {**DELIVERY, "uuid": "demo-1-7", "chunk_id": 0, "num_chunks": 3, "total_chunk_bytes": 9000}


@dataclass(frozen=True)
class Template:
    """A malformed record: the one code that it earns and how."""

    code: str
    kind: str
    rest: dict[str, object]
    without: tuple[str, ...] = ()
    clocks: dict[str, int] = field(default_factory=dict)
    """Common columns with a value of their own; `NULL` leaves one out."""
    cut: int = 0
    """Bytes missing at the end of the line."""


def _publish(**changed: object) -> dict[str, object]:
    return {
        "cnx_id": "10.0.0.9:40001",
        "producer_id": 1,
        "producer_name": "demo-x",
        "sequence_id": 5,
        "entry_bytes": 300,
        "num_messages": 2,
        **changed,
    }


def _policy(document: object) -> dict[str, object]:
    return {"policy_json": json.dumps(document)}


TEMPLATES: tuple[Template, ...] = (
    Template("UNPARSEABLE", "publish", _publish(), cut=12),
    Template("BAD_TYPE", "publish", _publish(entry_bytes="300")),
    Template("BAD_TYPE", "publish", _publish(sequence_id=2**63)),
    Template("BAD_TYPE", "publish", _publish(num_messages=1.5)),
    Template("UNKNOWN_EVENT_TYPE", "message_teleported", _publish()),
    Template("MISSING_REQUIRED", "publish", _publish(), without=("topic",)),
    Template("MISSING_REQUIRED", "publish", _publish(cnx_id="")),
    Template("MISSING_CLOCK", "publish", _publish(), clocks={"ts_mono_ns": NULL}),
    Template("CLOCK_OUT_OF_RANGE", "publish", _publish(), clocks={"ts_wall_ms": -1}),
    Template("CLOCK_OUT_OF_RANGE", "publish", _publish(broker_time_ms=-1)),
    Template("CLOCK_OUT_OF_RANGE", "publish", _publish(publish_time_ms=-1)),
    Template("NEGATIVE_AMOUNT", "publish", _publish(entry_bytes=-300)),
    Template("BAD_POSITION", "entry_added", {"ledger_id": -4, "entry_id": 7, "entry_bytes": 300}),
    Template("BAD_POSITION", "cursor_state", {"subscription": "main", "mark_delete": "70001-7"}),
    Template("BAD_PRODUCER_ID", "publish", _publish(producer_id=-2)),
    Template("BAD_TOPIC", "publish", _publish(topic="persistent://shop/orders")),
    Template("BAD_SUB_TYPE", "dispatch", {**DELIVERY, "sub_type": "broadcast"}),
    Template("CHUNK_FIELDS_INCOMPLETE", "dispatch", CHUNK, without=("uuid",)),
    Template("CHUNK_ID_OUT_OF_RANGE", "dispatch", {**CHUNK, "chunk_id": 3}),
    Template("CHUNK_IN_BATCH", "dispatch", {**CHUNK, "num_messages": 2}),
    Template(
        "CHUNK_NON_PERSISTENT", "dispatch", {**CHUNK, "topic": "non-persistent://shop/clicks/live"}
    ),
    Template(
        "BAD_POLICY", "policy", _policy({"scope": "galaxy", "name": "milky-way", "limits": {}})
    ),
    Template(
        "BAD_POLICY",
        "policy",
        _policy(
            {"scope": "topic", "name": "shop/orders/x", "limits": {"publishRateInMsgs": "many"}}
        ),
    ),
)


class Malformed:
    """The malformed records of a trace: `total` of them, every template in turn."""

    def __init__(self, fleet: Fleet, total: int, rng: np.random.Generator) -> None:
        self._fleet = fleet
        end = fleet.scenario.active_s * SECOND
        self._at = np.sort(rng.integers(FIRST_PUBLISH_NS + SECOND, end, total))
        self._template = rng.permutation(np.arange(total) % len(TEMPLATES))
        self._topic = rng.integers(0, len(fleet.topics.names), total)

    def rows(self, begin: int, end: int) -> tuple[np.ndarray, list[Template]]:
        """Those of [begin, end) ns with their templates."""
        first, last = np.searchsorted(self._at, [begin, end])
        chosen = [TEMPLATES[i] for i in self._template[first:last]]
        topics = self._topic[first:last]
        texts = self._fleet.texts
        tails = [
            texts.add_raw(_tail(t, self._fleet.topics.names[topic]))
            for t, topic in zip(chosen, topics, strict=True)
        ]
        rows = make_rows(
            len(chosen),
            event_type=texts.add_all([t.kind for t in chosen]),
            fixed=1,
            stream=stream_of(self._fleet, INTERCEPTOR, self._fleet.topics.broker[topics]),
            at_ns=self._at[first:last],
            tail=np.array(tails, dtype=np.int64),
        )
        return rows, chosen


def _tail(template: Template, topic: str) -> bytes:
    columns = {"topic": topic, **template.rest}
    if template.kind == "policy":
        del columns["topic"]
    text = json.dumps(
        {k: v for k, v in columns.items() if k not in template.without}, separators=(",", ":")
    )
    line = "," + text[1:]
    return line[: len(line) - template.cut].encode()


def spoil_clocks(rows: np.ndarray, chosen: list[Template]) -> None:
    """Puts the wrong clocks in, after the right ones have been stamped."""
    for i, template in enumerate(chosen):
        for name, value in template.clocks.items():
            rows[i, PLACE[name]] = value
