"""The command `size`: what a run needs for a load, from measured coefficients.

`coefficients.json` is derived from the results of the benchmarks by
`python -m benchmarks --coefficients`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from app.terminal.sizes import size_text

COEFFICIENTS = Path(__file__).with_name("coefficients.json")
SECONDS_A_DAY = 86_400
BUSY = 0.7
"""Share of the cores that a steady load may use: the rest catches up after a stop."""
FEW_TOPICS, MANY_TOPICS = 1_000, 1_000_000
STATE_COPIES = 3
"""A state is in the state store, decoded in a worker, and encoded again."""


@dataclass(frozen=True)
class Load:
    """What a fleet sends."""

    events_per_s: float
    topics: int
    principals: int
    batch_s: float
    shadows: int = 0
    """Sets of policies beside the live ones."""


@dataclass(frozen=True)
class Need:
    """One line of the answer: what, how much in which unit, how it is computed and from where."""

    name: str
    value: float
    unit: str
    formula: str
    measured: str


def needs(load: Load, document: dict[str, Any]) -> list[Need]:
    """Cores, memory, disk and commits for a load."""
    known = {name: each["value"] for name, each in document["coefficients"].items()}
    origins = {name: each["from"] for name, each in document["coefficients"].items()}

    def need(name: str, value: float, unit: str, formula: str, *used: str) -> Need:
        return Need(name, value, unit, formula, "; ".join(dict.fromkeys(origins[u] for u in used)))

    slower = _slower(load.topics, known["slower_at_1m_topics"])
    shadowed = 1 + load.shadows * known["slower_a_shadow"]
    busy = shadowed * (
        load.events_per_s * known["core_s_per_event"] * slower
        + known["core_s_per_batch"] / load.batch_s
    )
    cores = math.ceil(busy / BUSY)
    state = (
        load.topics * known["state_bytes_per_topic"]
        + load.principals * known["state_bytes_per_principal"]
    )
    memory = (
        (known["driver_gb"] + cores * known["worker_gb"]) * 1e9
        + STATE_COPIES * state
        + load.topics * known["driver_bytes_per_topic"]
    )
    events = load.events_per_s * SECONDS_A_DAY
    return [
        need(
            "cores",
            cores,
            "cores",
            f"(events x cost x {slower:.2f} for the topics + batches x cost)"
            f" x {shadowed:.2f} for the shadows / {BUSY}",
            "core_s_per_event",
            "core_s_per_batch",
            "slower_at_1m_topics",
            "slower_a_shadow",
        ),
        need(
            "memory",
            memory,
            "bytes",
            f"driver + cores x Python worker + {STATE_COPIES} x state + topics x what the state "
            "stores of Spark hold outside the heap",
            "driver_gb",
            "worker_gb",
            "driver_bytes_per_topic",
        ),
        need(
            "state",
            state,
            "bytes",
            "topics and principals x their state",
            "state_bytes_per_topic",
            "state_bytes_per_principal",
        ),
        need(
            "archive",
            events * known["archive_bytes_per_event"],
            "bytes per day",
            "events x bytes in the table events",
            "archive_bytes_per_event",
        ),
        need(
            "tables",
            events * known["table_bytes_per_event"],
            "bytes per day",
            "events x bytes in the jobs' tables, for the demo's share of throttled topics",
            "table_bytes_per_event",
        ),
        need(
            "commits",
            SECONDS_A_DAY / load.batch_s * known["commits_per_batch"],
            "per day",
            "micro-batches x commits of a batch in which every job has rows",
            "commits_per_batch",
        ),
    ]


def _slower(topics: int, at_most: float) -> float:
    """The cost of an event among so many topics, over that among 1,000; by the logarithm between
    the two that were measured, and beyond."""
    share = math.log(max(topics, FEW_TOPICS) / FEW_TOPICS) / math.log(MANY_TOPICS / FEW_TOPICS)
    return 1 + (at_most - 1) * share


def size(load: Load, as_json: bool, why: bool = False) -> int:
    """Print what a load needs, with `why` each need with its formula; the exit code."""
    document = json.loads(COEFFICIENTS.read_text("utf-8"))
    found = needs(load, document)
    if as_json:
        print(
            json.dumps(
                {
                    "load": vars(load),
                    "measured_on": document["measured_on"],
                    "needs": [vars(each) for each in found],
                },
                indent=2,
            )
        )
        return 0
    if not why:
        known = {each.name: each for each in found}
        archive = known["archive"].value
        print(
            f"cores   {known['cores'].value:,.0f}",
            f"memory  {_shown(known['memory'])}",
            f"disk    {size_text(archive + known['tables'].value)} a day,"
            f" {size_text(archive)} of it the archive",
            "\n--why shows how they are computed and when that was measured.",
            sep="\n",
        )
        return 0
    table = Table(box=None, pad_edge=False)
    for title in ("need", "value", "computed as", "measured by (date)"):
        table.add_column(title, overflow="fold", no_wrap=title == "value")
    for each in found:
        table.add_row(each.name, _shown(each), each.formula, each.measured)
    Console().print(table)
    print(
        f"\nMeasured on {document['measured_on']}; other processors differ. "
        "docs/benchmarks.md has the results."
    )
    return 0


def _shown(need: Need) -> str:
    if need.unit.startswith("bytes"):
        return size_text(need.value) + need.unit.removeprefix("bytes")
    return f"{need.value:,.0f} {need.unit}"
