"""What the command `size` computes with, derived from the result files of the benchmarks."""

from __future__ import annotations

import json
from typing import Any

from app.setup.size import COEFFICIENTS
from benchmarks.result import FOLDER

MS_PER_S = 1000
MANY_TOPICS = 1_000_000
EVENTS_OF_BATCH = 500_000
"""Of a batch of `topics`."""
FEW_TOPICS = 1_000


def _result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return found


def _figure(name: str, figure: str) -> float:
    """The value of a figure of a result."""
    (value,) = [each["value"] for each in _result(name)["figures"] if each["name"] == figure]
    return float(value)


def derived() -> dict[str, Any]:
    """Coefficients by name: value, and the measurement that it comes from."""
    cores = _result("flood")["machine"]["cores"]
    batch_ms = sum(
        _figure("small-batches", f"CPU of {part} a batch, five jobs")
        for part in ("Python workers", "JVM", "driver")
    )
    per_event_us = sum(
        _figure("govern-all", f"CPU of {part}") for part in ("Python workers", "JVM", "driver")
    )
    events_per_batch, flood = 5000, "as it comes"
    driver_gb = _figure("flood", f"{flood}: memory of the driver's JVM, at most")
    with_topics_gb = _figure(
        "flood_shapes", "a million topics: memory of the driver's JVM, at most"
    )
    few, many = (_figure("topics", f"govern, {n} topics") for n in ("1,000", "1,000,000"))
    topics_us = 1e6 * (1 / many - 1 / few) * _result("topics")["machine"]["cores"]
    few_bytes, many_bytes = (_figure("state", f"state, {n} topics") for n in ("1,000", "1,000,000"))
    planned = "planned as one"
    memory, records = (
        [_figure("flood", f"{way}: {what}") for way in (planned, flood)]
        for what in ("memory of all Python processes, at most", "largest micro-batch")
    )
    store = {n: f"{n} of a micro-batch" for n in ("writes", "reads")}
    two, four = ("six jobs, 2 partitions: ", "six jobs, 4 partitions: ")
    more = {
        n: max(_figure("store", four + f) - _figure("store", two + f), 0) / 2
        for n, f in store.items()
    }
    shadow, alone = (
        _figure("shadows", f"large batch, five jobs, {n} shadow") for n in ("one", "no")
    )
    found = {
        "core_s_per_event": (
            _figure("flood", f"{flood}: CPU after the first batch") / 1e6,
            "flood",
        ),
        "core_s_per_batch": (
            batch_ms / MS_PER_S - events_per_batch * per_event_us / 1e6,
            "small-batches, govern-all",
        ),
        "core_s_per_topic_of_batch": (topics_us / 1e6 * EVENTS_OF_BATCH / MANY_TOPICS, "topics"),
        "slower_a_shadow": (shadow / alone - 1, "shadows"),
        "driver_gb": (driver_gb, "flood"),
        "driver_bytes_per_topic": (
            (with_topics_gb - driver_gb) * 1e9 / MANY_TOPICS,
            "flood_shapes, flood",
        ),
        "worker_gb": (
            _figure("flood", f"{flood}: memory of all Python processes, at most") / cores,
            "flood",
        ),
        "worker_bytes_per_record": (
            (memory[0] - memory[1]) * 1e9 / (records[0] - records[1]),
            "flood",
        ),
        "state_bytes": ((few_bytes - many_bytes) * FEW_TOPICS, "state"),
        "state_bytes_per_topic": (many_bytes, "state"),
        "state_bytes_per_principal": (
            _figure("producer_ids", "state, 10,000 users with 50 ids each, bloom"),
            "producer_ids",
        ),
        "archive_bytes_per_event": (_figure("storage", "archive"), "storage"),
        "table_bytes_per_event": (_figure("storage", "tables of the jobs"), "storage"),
        "commits_per_batch": (_figure("storage", "commits"), "storage"),
        **{
            f"{n}_per_batch": (_figure("store", two + f) - 2 * more[n], "store")
            for n, f in store.items()
        },
        **{f"{n}_per_batch_and_partition": (each, "store") for n, each in more.items()},
    }
    machine = _result("flood")["machine"]
    return {
        "measured_on": f"{cores} cores of {machine['cpu']}",
        "coefficients": {
            name: {
                "value": float(f"{value:.4g}"),
                "from": ", ".join(
                    f"{each} ({_result(each)['machine']['date']})" for each in source.split(", ")
                ),
            }
            for name, (value, source) in found.items()
        },
    }


def write() -> None:
    """Write the file of coefficients."""
    COEFFICIENTS.write_text(json.dumps(derived(), indent=1) + "\n", encoding="utf-8")
