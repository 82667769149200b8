"""Figures that pages name are those of the result files of the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.setup.size import COEFFICIENTS
from benchmarks import table
from benchmarks.__main__ import RESULTS
from benchmarks.result import FOLDER

ROOT = Path(__file__).resolve().parents[3]


def figures(name: str) -> dict[str, float]:
    """The figures and ratios of a benchmark by name."""
    found = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))
    return {one["name"]: one["value"] for one in [*found["figures"], *found["ratios"]]}


def shadow() -> str:
    more = (
        figures("shadows")[
            "large batch, rate_limits, one shadow / large batch, rate_limits, no shadow"
        ]
        - 1
    )
    return f"up to {more:.0%}".replace("%", " %")


def coefficient(name: str) -> float:
    """A coefficient of the command `size`."""
    value = json.loads(COEFFICIENTS.read_text("utf-8"))["coefficients"][name]["value"]
    return float(value)


def cost() -> str:
    event_s, batch_s = coefficient("core_s_per_event"), coefficient("core_s_per_batch")
    return f"takes {event_s * 1e6:.0f} µs of a core and a micro-batch of five jobs {batch_s:.2f} s"


def topic_memory() -> str:
    return f"{coefficient('driver_bytes_per_topic') / 1000:.1f} kB per topic"


def replayed() -> str:
    found = figures("replay")
    speed = round(found["replay of five jobs"], -4)
    ratio = found["replay of five jobs / read and shuffled by Spark"]
    return (
        f"five jobs take {speed:,.0f} archived records of the demo's fleet a second, "
        f"{ratio:.2f} of the speed"
    )


def growing_log() -> str:
    found = figures("maintenance")
    before = "without maintenance, 1314 commits: "
    return (
        f"{found[before + 'commit'] * 1000:.0f} ms after 1,314, and the log of one table "
        f"{found[before + 'log']:.1f} MB"
    )


def short_log() -> str:
    found = figures("maintenance")
    costs = [found[f"with maintenance, {n} commits: commit"] for n in range(438, 2191, 438)]
    return f"{min(costs) * 1000:.0f} to {max(costs) * 1000:.0f} ms over 2,190 commits"


def paused_by_others() -> str:
    found = figures("claim")
    return (
        f"{found['none: collateral pause time']:.0f} s, "
        f"{found['none: its share of all paused time']:.0f} % of all paused time"
    )


MACHINE = 16 * 0.7
"""Cores of a machine of docs/scaling.md that a steady load uses."""


def events_of_machine() -> float:
    """Events a second of a machine, as far as tasks go."""
    return MACHINE / coefficient("core_s_per_event")


def driver() -> tuple[float, float]:
    """CPU seconds of the driver for a micro-batch, and for an event of it: of a large batch and of
    a small one."""
    large, small = figures("govern-all"), figures("small-batches")
    events = large["five jobs from JSON lines"] * large["batch of five jobs"] / 1000
    large_s = large["CPU of driver"] * events / 1e6
    small_s = small["CPU of driver a batch, five jobs"] / 1000
    per_event_s = (large_s - small_s) / (events - 5_000)
    return small_s - 5_000 * per_event_s, per_event_s


def tasks_of_machines() -> str:
    machine = events_of_machine() / 1e6
    return (
        f"{1e6 * coefficient('core_s_per_event'):.1f} µs of a core per event | "
        f"{machine:.1f} million events a second | {10 * machine:.0f} million | "
        f"{100 * machine:.0f} million |"
    )


def driver_of_machines() -> str:
    batch_s, event_s = driver()
    of_ten = 10 * events_of_machine() * event_s
    return (
        f"{1000 * batch_s:.0f} ms of a core per micro-batch and {1e6 * event_s:.2f} µs per event | "
        f"a third of a core | **{of_ten:.1f} cores of one process** | {10 * of_ten:.0f} cores |"
    )


def first_wall() -> str:
    events = 1 / driver()[1]
    return (
        f"one core at {events / 1e6:.1f} million events a second with the demo's share of throttled "
        f"topics, the load of {events / events_of_machine():.1f} machines"
    )


def commits_of_batch() -> str:
    return f"| {coefficient('commits_per_batch'):.0f} tables of a micro-batch, whatever its size |"


def busiest_broker() -> str:
    cost = figures("steps")["rate_limits, large batches"]
    return (
        f"{cost:.2f} µs of a core per event of all | {1 / cost:.1f} million events a second of one"
        " broker"
    )


def state_of_machines() -> str:
    million = figures("state")["state, 1,000,000 topics"]
    return (
        f"{million:.0f} bytes of a topic in `rate_limits` | "
        f"1 million topics: {million / 32:.0f} MB a shard"
    )


def archive_of_machines() -> str:
    per_event = coefficient("archive_bytes_per_event")
    day = events_of_machine() * 86_400 * per_event / 1e12
    return (
        f"{per_event:.0f} bytes of an event | {day:.1f} TB a day | {10 * day:.0f} TB | "
        f"{100 * day:.0f} TB |"
    )


def topics_and_speed() -> str:
    ratio = figures("topics")["govern, 1,000,000 topics / govern, 1,000 topics"]
    return f"A million topics run at {ratio:.2f} of the speed of a thousand"


def replays_on_cluster() -> tuple[dict[str, float], dict[str, float]]:
    """The figures of a replay on one executor and on two."""
    found = figures("replay-cluster")
    one, two = (f", replay on {n} of one CPU" for n in ("1 executor", "2 executors"))
    return tuple(
        {name.removesuffix(end): v for name, v in found.items() if name.endswith(end)}
        for end in (one, two)
    )


def executor_us(one: dict[str, float]) -> float:
    events = json.loads((ROOT / "benchmarks/results/replay-cluster.json").read_text())["events"]
    return 1e6 * one["CPU of executors"] / events


def cpu_of_replays() -> str:
    one, two = replays_on_cluster()
    return (
        f"| CPU of executors | {executor_us(one):.1f} µs per event | {executor_us(two):.1f} µs | "
        f"| CPU of the driver | {one['CPU of the driver']:.1f} s | "
        f"{two['CPU of the driver']:.1f} s |"
    )


def tasks_of_replays() -> str:
    one, two = replays_on_cluster()
    busy = "executors with a task, of the time between plan and commit"
    return f"| executors with a task, from plan to commit | {one[busy]:.0f} % | {two[busy]:.0f} % |"


def speed_of_replays() -> str:
    speeds = [one["by the CPU time of the busier machine"] for one in replays_on_cluster()]
    return (
        f"{speeds[0]:,.0f} events a second | {speeds[1]:,.0f}, that is"
        f" {speeds[1] / speeds[0]:.2f} times |"
    )


def longest_task() -> str:
    one, two = (found["longest task, of all tasks"] for found in replays_on_cluster())
    return f"| longest task | {one:.0f} % of all | {two:.0f} % of all |"


def executors_that_help() -> str:
    most = replays_on_cluster()[0]["longest task, of all tasks"]
    return f"it is {most:.0f} % of all, so that more than {100 / most:.0f} executors do not help"


def large_replay() -> str:
    cpu_s = 1000 * executor_us(replays_on_cluster()[1])
    return f"1,000 million events are {cpu_s:,.0f} s of CPU, and on 64 executors {cpu_s / 64:.0f} s"


def exchanged() -> str:
    size = figures("steps")["shuffled"]
    return f"{size:.0f} bytes of an event, {size:.0f} GB written and read once"


def second_executor() -> str:
    one, two = (found["by the CPU time of the busier machine"] for found in replays_on_cluster())
    return f"{two / one:.2f} times as fast by the CPU time of the busier machine"


def reporter_time() -> str:
    found = figures("reporter")
    files, topic, dead = (
        found[f"processor time of its threads, with {sink}"]
        for sink in ("files", "a topic", "a dead sink")
    )
    return (
        f"take {files:.0f} ms of processor time a second with files, {topic:.0f} with a topic of the"
        f" same broker, which takes in the records besides, and {dead:.0f} with a sink that is dead"
    )


def plugin_latency() -> str:
    found = figures("plugin")
    cases = ("files", "a dead sink")
    half, most = (
        [f"{found[f'publish {q}, with{case}']:.1f}" for case in ("out", *(f" {c}" for c in cases))]
        for q in ("p50", "p99")
    )
    return (
        f"(p50 {half[1]} and {half[2]} ms against {half[0]}, p99 {most[1]} and {most[2]} against"
        f" {most[0]})"
    )


def plugin_throughput() -> str:
    found = json.loads((ROOT / "benchmarks/results/plugin.json").read_text("utf-8"))["figures"]
    ends = [each["spread"] for each in found if each["name"].startswith("throughput")]
    least, most = min(low for low, _ in ends), max(high for _, high in ends)
    return f"lies between {least:,.0f} and {most:,.0f} per second"


def client_quotas_and_floor() -> str:
    ratio = figures("client_quotas")[
        "client_quotas from columns / identity behind the same shuffle"
    ]
    return f"`client_quotas` from columns is {ratio:.2f} of identity behind the same shuffle"


def memory_of_runs() -> str:
    found = figures("weight")
    one, twenty = (
        -(-found[f"{n}, 500 groups each: at most"] // 100) / 10
        for n in ("1 cluster", "20 clusters")
    )
    return (
        f"A run of one cluster takes at most {one:.1f} GB of memory, one of twenty {twenty:.1f} GB"
    )


def first_lines() -> str:
    return f"work {figures('first_hour')['run: queries started']:.0f} s after the start"


@pytest.mark.parametrize(
    ("page", "figure"),
    [
        ("../README.md", first_lines),
        ("../README.md", memory_of_runs),
        ("operations.md", shadow),
        ("operations.md", cost),
        ("operations.md", topic_memory),
        ("maintenance.md", growing_log),
        ("maintenance.md", short_log),
        ("demo.md", paused_by_others),
        ("replay.md", replayed),
        ("scaling.md", tasks_of_machines),
        ("scaling.md", driver_of_machines),
        ("scaling.md", first_wall),
        ("scaling.md", commits_of_batch),
        ("scaling.md", busiest_broker),
        ("scaling.md", state_of_machines),
        ("scaling.md", archive_of_machines),
        ("scaling.md", topics_and_speed),
        ("scaling.md", cpu_of_replays),
        ("scaling.md", tasks_of_replays),
        ("scaling.md", speed_of_replays),
        ("scaling.md", longest_task),
        ("scaling.md", executors_that_help),
        ("scaling.md", large_replay),
        ("scaling.md", exchanged),
        ("benchmarks.md", second_executor),
        ("benchmarks.md", client_quotas_and_floor),
        ("feeds/kafka-reporter.md", reporter_time),
        ("feeds/pulsar-plugin.md", plugin_latency),
        ("feeds/pulsar-plugin.md", plugin_throughput),
    ],
)
def test_a_page_names_the_measured_figure(page, figure):
    text = " ".join((ROOT / "docs" / page).read_text("utf-8").split())
    assert figure() in text


def test_the_page_has_the_results_and_what_they_miss():
    page = table.DOCUMENT.read_text("utf-8")
    assert table.with_results(page, RESULTS) == page, "make figures"


@pytest.mark.parametrize("name", table.aims())
def test_an_aim_is_that_of_a_figure(name):
    measured = (FOLDER / f"{name}.json").exists()
    assert not measured or table.aims()[name].keys() <= figures(name).keys()
    assert name in RESULTS
