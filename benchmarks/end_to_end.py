"""Govern and archive from JSON to committed tables, against Spark's own parsing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from app.engine import archive_query, govern
from app.run.progress import records
from benchmarks import floors
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace
from benchmarks.generator.write import write_files
from benchmarks.inputs import Input
from benchmarks.result import Result
from benchmarks.stream import END, Bench, Speed, finished

JOBS = ["rate_limits"]
PARSE, CONTRACT = "parse floor, 17 columns", "parse floor, whole contract"


def run(bench: Bench) -> Result:
    """Govern alone and with the archive; the floor before, between and after."""
    trace = bench.trace("zipf", bench.traffic())
    result = Result("govern", trace.events, bench.small)
    narrow = [floors.parse(bench, trace)]
    ours = govern_alone(bench, trace)
    narrow.append(floors.parse(bench, trace))
    lines = govern_alone(bench, trace, "files")
    both = with_archive(bench, trace)
    narrow.append(floors.parse(bench, trace))
    wide = floors.parse(bench, trace, None)
    speeds = sorted(s.median for s in narrow)
    result.add(PARSE, speeds[1], spread=(speeds[0], speeds[-1]))
    result.add(CONTRACT, wide.median, spread=wide.spread)
    result.add("govern from JSON", ours.median, spread=ours.spread, note="source delta")
    result.add("govern from JSON lines", lines.median, spread=lines.spread, note="source files")
    result.add("govern and archive", both)
    result.add("batch of govern", ours.batch_ms, "ms")
    result.ratio("govern from JSON", PARSE)
    result.ratio("govern from JSON lines", PARSE)
    result.ratio("govern from JSON", CONTRACT)
    result.ratio("govern and archive", PARSE)
    return result


def demo(bench: Bench) -> Result:
    """The demo's fleet, with its incidents and broken records, instead of the plain trace."""
    events = 25_000 if bench.small else 2_000_000
    folder = bench.folder / "demo-trace"
    trace = plan_trace(load_scenario("demo"), events, 7)
    written = write_files(trace, folder)
    result = Result("govern-demo", written.events, bench.small)
    source = {"format": "files", "path": str(folder), "options": {"maxFilesPerTrigger": "6"}}
    settings = bench.settings("demo", source, policies=trace.policies)
    lines = bench.spark.readStream.option("maxFilesPerTrigger", 6).text(str(folder))
    floor = bench.to_nothing(floors.parsed(lines, None), "floor-demo")
    ours = finished(govern.start(bench.spark, settings, JOBS, END))
    again = bench.to_nothing(floors.parsed(lines, None), "floor-demo")
    middle = (floor.median + again.median) / 2
    result.add(CONTRACT, middle, spread=(floor.median, again.median))
    result.add("govern of the demo", ours.median, spread=ours.spread)
    result.ratio("govern of the demo", CONTRACT)
    return result


def topics(bench: Bench) -> Result:
    """A million topics against a thousand, the same number of events, each topic alike."""
    result = Result("topics", 0, bench.small)
    names = {1_000: "govern, 1,000 topics", 1_000_000: "govern, 1,000,000 topics"}
    for count, name in names.items():
        trace = bench.trace(f"topics-{count}", bench.traffic(topics=count, skew=0.0))
        speed = govern_alone(bench, trace)
        result.events = trace.events
        result.add(name, speed.median, spread=speed.spread)
        if count > 1_000:
            result.add("last batch of it", _rate(speed.progress[-1]))
    result.ratio(names[1_000_000], names[1_000])
    return result


def source_of(trace: Input, form: str) -> dict[str, Any]:
    """The trace as a source of the configuration."""
    path = trace.lines if form == "files" else trace.records
    return {
        "format": form,
        "path": str(path),
        "options": {"maxFilesPerTrigger": str(trace.per_trigger)},
    }


def govern_alone(bench: Bench, trace: Input, form: str = "delta") -> Speed:
    """Govern from JSON to committed tables."""
    settings = bench.settings(f"govern-{form}", source_of(trace, form))
    return finished(govern.start(bench.spark, settings, JOBS, END))


def with_archive(bench: Bench, trace: Input) -> float:
    """Records per second through the jobs and the archive that they carry."""
    settings = bench.settings("both", source_of(trace, "delta"))
    archive = archive_query.writer_of(settings, gathers=False)
    return after_first_batch(
        govern.start(bench.spark, settings, JOBS, END, writers=govern.Writers(archive=archive))
    )


def after_first_batch(query: Any) -> float:
    """Records per second of a query from the end of its first batch to its end."""
    finished(query)
    first, *rest = (p for p in query.recentProgress if records(p))
    return sum(records(p) for p in rest) / (_end(rest[-1]) - _end(first))


def _end(progress: Any) -> float:
    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    return began + float(progress["durationMs"]["triggerExecution"]) / 1000


def _rate(progress: dict[str, Any]) -> float:
    return float(progress["events"] * 1000 / progress["durationMs"]["triggerExecution"])
