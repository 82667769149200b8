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

from app.config.source import SourceSettings
from app.terminal.sizes import size_text

COEFFICIENTS = Path(__file__).with_name("coefficients.json")
SECONDS_A_DAY = 86_400
DAYS = 30
"""Of a month of an object store."""
BUSY = 0.7
"""Share of the cores that a steady load may use: the rest catches up after a stop."""
RECORDS = SourceSettings.model_fields["max_records_per_trigger"].default
"""Most records of a micro-batch where the configuration names no number."""
STATE_COPIES = 3
"""A state is in the state store, decoded in a worker, and encoded again."""
HEAP = "2g"
"""Of the driver in all measurements of memory."""


@dataclass(frozen=True)
class Load:
    """What a fleet sends."""

    events_per_s: float
    topics: int
    principals: int
    batch_s: float
    shadows: int = 0
    """Sets of policies beside the live ones."""
    prices: tuple[float, ...] | None = None
    """Of an object store: 1,000 writes or lists, 1,000 reads, a GB for a month."""


@dataclass(frozen=True)
class Need:
    """One line of the answer: what, how much in which unit, how it is computed and from where."""

    name: str
    value: float
    unit: str
    formula: str
    measured: str


FORMULAS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "cores": (
        "cores",
        "(events x cost + batches x (cost + topics x cost of reading and writing them))"
        f" x {{shadowed:.2f}} for the shadows / {BUSY}",
        ("core_s_per_event", "core_s_per_batch", "core_s_per_topic_of_batch", "slower_a_shadow"),
    ),
    "records": (
        "per batch",
        f"events of its time / {BUSY}, at least the default",
        ("core_s_per_event",),
    ),
    "memory": ("bytes", "driver + workers", ("driver_gb", "worker_gb")),
    "workers": (
        "bytes",
        f"cores x Python worker + records beyond the default + {STATE_COPIES} x state + topics"
        " x what the state stores of Spark hold outside the heap",
        ("worker_gb", "worker_bytes_per_record", "driver_bytes_per_topic"),
    ),
    "state": (
        "bytes",
        "what is always there + topics and principals x their state",
        ("state_bytes", "state_bytes_per_topic", "state_bytes_per_principal"),
    ),
    "archive": (
        "bytes per day",
        "events x bytes in the table events",
        ("archive_bytes_per_event",),
    ),
    "tables": (
        "bytes per day",
        "events x bytes in the jobs' tables, for the demo's share of throttled topics",
        ("table_bytes_per_event",),
    ),
    "commits": (
        "per day",
        "micro-batches x commits of a batch in which every job has rows",
        ("commits_per_batch",),
    ),
    **{
        kind: (
            "per day",
            "micro-batches x (requests of a batch to an object store + partitions x those of"
            " their states)",
            (f"{kind}_per_batch",),
        )
        for kind in ("writes", "reads")
    },
}
"""By what is needed its unit, how it is computed, and the coefficients that are named as its origin."""


def needs(load: Load, document: dict[str, Any]) -> list[Need]:
    """Cores, memory, disk and commits for a load."""
    known = {name: each["value"] for name, each in document["coefficients"].items()}
    origins = {name: each["from"] for name, each in document["coefficients"].items()}
    shadowed = 1 + load.shadows * known["slower_a_shadow"]
    return [
        Need(
            name,
            value,
            FORMULAS[name][0],
            FORMULAS[name][1].format(shadowed=shadowed),
            "; ".join(dict.fromkeys(origins[used] for used in FORMULAS[name][2])),
        )
        for name, value in _values(load, known, shadowed).items()
    ]


def _values(load: Load, known: dict[str, float], shadowed: float) -> dict[str, float]:
    """What is needed, from the coefficients."""
    busy = shadowed * (
        load.events_per_s * known["core_s_per_event"]
        + (known["core_s_per_batch"] + load.topics * known["core_s_per_topic_of_batch"])
        / load.batch_s
    )
    cores = math.ceil(busy / BUSY)
    records = max(RECORDS, math.ceil(load.events_per_s * load.batch_s / BUSY))
    state = (
        known["state_bytes"]
        + load.topics * known["state_bytes_per_topic"]
        + load.principals * known["state_bytes_per_principal"]
    )
    workers = (
        cores * known["worker_gb"] * 1e9
        + (records - RECORDS) * known["worker_bytes_per_record"]
        + STATE_COPIES * state
        + load.topics * known["driver_bytes_per_topic"]
    )
    batches = SECONDS_A_DAY / load.batch_s
    events = load.events_per_s * SECONDS_A_DAY
    return {
        "cores": cores,
        "records": records,
        "memory": known["driver_gb"] * 1e9 + workers,
        "workers": workers,
        "state": state,
        "archive": events * known["archive_bytes_per_event"],
        "tables": events * known["table_bytes_per_event"],
        "commits": batches * known["commits_per_batch"],
        **{
            kind: batches
            * (known[f"{kind}_per_batch"] + cores * known[f"{kind}_per_batch_and_partition"])
            for kind in ("writes", "reads")
        },
    }


def keys(needs: dict[str, Need]) -> dict[str, str]:
    """What to set, by key of the configuration or option of the start."""
    cores = needs["cores"].value
    overhead = math.ceil(needs["workers"].value / cores / 2**20)
    return {
        "partitions": f"{cores:.0f}",
        "source.max_records_per_trigger": f"{needs['records'].value:.0f}",
        "--driver-memory": HEAP,
        "spark.executor.memoryOverhead": f"{overhead}m for each core of an executor",
    }


def cost(needs: dict[str, Need], prices: tuple[float, ...]) -> float:
    """Of a month in an object store: its requests, and its archive and tables kept for so long."""
    writes, reads, stored = prices
    return DAYS * (
        needs["writes"].value / 1000 * writes
        + needs["reads"].value / 1000 * reads
        + (needs["archive"].value + needs["tables"].value) / 1e9 * stored
    )


def size(load: Load, as_json: bool, why: bool = False) -> int:
    """Print what a load needs, with `why` each need with its formula; the exit code."""
    document = json.loads(COEFFICIENTS.read_text("utf-8"))
    found = {each.name: each for each in needs(load, document)}
    a_month = None if load.prices is None else cost(found, load.prices)
    if as_json:
        answer = {"load": vars(load), "measured_on": document["measured_on"], "cost": a_month}
        answer |= {"needs": [vars(each) for each in found.values()], "set": keys(found)}
        print(json.dumps(answer, indent=2))
        return 0
    if not why:
        archive = found["archive"].value
        print(
            f"cores   {found['cores'].value:,.0f}",
            f"memory  {_shown(found['memory'])}",
            f"disk    {size_text(archive + found['tables'].value)} a day,"
            f" {size_text(archive)} of it the archive",
            f"store   {found['writes'].value:,.0f} writes and lists and {found['reads'].value:,.0f} reads"
            f" a day{'' if a_month is None else f', {a_month:,.2f} a month'}, in an object store",
            *(f"set     {key}: {value}" for key, value in keys(found).items()),
            "\n--why shows how they are computed and when that was measured.",
            sep="\n",
        )
        return 0
    table = Table(box=None, pad_edge=False)
    for title in ("need", "value", "computed as", "measured by (date)"):
        table.add_column(title, overflow="fold", no_wrap=title == "value")
    for each in found.values():
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
