"""The kernel's rows as output tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.backlog import outputs as O
from state.backlog.layout import NULL, Array, Out, World
from state.engine.emitted import Emitted, integers, positions, share, shorts
from state.engine.names import Names
from state.engine.records import Records
from state.engine.table import Output

_PARTITION = r"^(?P<topic>.*)-partition-(?P<number>[0-9]{1,9})$"
"""A longer number is part of a name."""
Given = dict[str, pa.Array]


def tables(w: World, o: Out, records: Records, names: Names) -> dict[str, pa.Table]:
    """The tables that have rows after a call; `records` are the judged ones."""
    p, of = w.store.settings[0], Emitted(names, w.store.keys, records)
    topics = w.store.keys["topic"]
    every: tuple[tuple[Output, Array, Callable[[Array], Given]], ...] = (
        (O.CHECKS, o.checks[: p["checks"]], _of_check),
        (O.EVICTIONS, o.evictions[: p["evictions"]], lambda _: {}),
        (O.SUBSCRIPTIONS, o.subscriptions[: p["subscriptions"]], _of_subscription),
        (O.REFUSALS, o.refusals[: p["refusals"]], lambda rows: _of_record(rows, records)),
        (O.LAGS, o.lags[: p["lags"]], lambda rows: _of_state(of, rows, topics)),
        (O.STATES, o.states[: p["states"]], lambda rows: _of_state(of, rows, topics)),
        (O.LOST, o.lost[: p["lost"]], lambda rows: _of_loss(of, rows, topics, records)),
    )
    return {
        output.name: of.table(output, rows, **given(rows))
        for output, rows, given in every
        if len(rows)
    }


def _of_check(rows: Array) -> Given:
    aged = np.where(rows["oldest_ms"] == NULL, NULL, rows["age_s"])
    return {
        "time_usage": share(aged, rows["limit_s"]),
        "ttl_s": integers(rows["ttl_s"], rows["ttl_s"] <= 0),
    }


def _of_subscription(rows: Array) -> Given:
    back = rows["from_ledger"] != NULL
    return {
        "set_back": pa.array(back),
        "set_back_to": positions(np.where(back, rows["to_ledger"], NULL), rows["to_entry"]),
    }


def _of_record(rows: Array, records: Records) -> Given:
    """The number of each row among those of its key and time, which follow one another."""
    at_ms, place = records["ts_wall_ms"][rows["record"]], np.arange(len(rows))
    begins = np.diff(rows["key"], prepend=-1) != 0
    begins |= np.diff(at_ms, prepend=at_ms[0]) != 0
    return {"row_no": shorts(place - np.maximum.accumulate(np.where(begins, place, 0)))}


def _of_group(of: Emitted, rows: Array, topics: Array) -> Given:
    """Kafka's own topic and partition of rows."""
    names = of.texts(topics[rows["key"]])
    parts = pc.extract_regex(names, _PARTITION)
    return {
        "topic": pc.coalesce(pc.struct_field(parts, "topic"), names),
        "partition": pc.struct_field(parts, "number").cast(pa.int32()),
    }


def _of_state(of: Emitted, rows: Array, topics: Array) -> Given:
    return {**_of_group(of, rows, topics), "rule": of.texts(rows["state"])}


def _of_loss(of: Emitted, rows: Array, topics: Array, records: Records) -> Given:
    lost = {"offsets": integers(rows["end"] - rows["begin"])}
    return {**_of_group(of, rows, topics), **_of_record(rows, records), **lost}
