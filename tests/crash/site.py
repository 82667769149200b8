"""Where a disaster happens: records in files or in Kafka, a warehouse, and runs on it."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import yaml

from app.archive_names import WRITES
from app.config.settings import Settings, load_settings
from app.run.service import run
from tests.crash.service import LOCAL, Service
from tests.crash.tables import ALONE, HOSTILE, Tables
from tests.support.traces import by_broker, punctual_trace
from tests.unit.state.contract.hostile import HOUR, hostile
from tests.unit.state.contract.jobs import JOBS

if TYPE_CHECKING:
    from tests.support.servers.kafka import Kafka

EVENTS = 18_000
ONE_OF = 20
FILES = 24
PARTITIONS = 2
Lines = list[tuple[int, bytes]]


class Records:
    """The records of a trace with hostile ones among them, and the tables of runs over them that
    nobody disturbs."""

    def __init__(self, folder: Path, seed: int = 1, start: datetime | None = None) -> None:
        """A trace that is given a start has no hostile records: theirs are far from the present."""
        self._folder = folder
        trace = punctual_trace(EVENTS, start=start)
        start_ms, order = trace.scenario.start_ms, random.Random(seed)
        lines = by_broker(trace)
        self.lines: Lines = lines if start else list(_attacked(lines, start_ms, order))
        self.policies = trace.policies
        self.events = folder / "events"
        write([line for _, line in self.lines], self.events)
        self._calm: dict[frozenset[int], Tables] = {}

    def calm(self, without: frozenset[int] = frozenset()) -> Tables:
        """The tables of an uninterrupted run over all records but those at the given places."""
        if without not in self._calm:
            folder, events = self._folder / f"calm-{len(self._calm)}", self.events
            if without:
                events = folder / "events"
                write([n for at, (_, n) in enumerate(self.lines) if at not in without], events)
            settings = load_settings(
                None,
                {
                    **self.configuration(folder),
                    **ALONE,
                    "source": {"format": "files", "path": str(events)},
                },
            )
            assert run(settings, available_now=True) == 0
            tables = self._calm[without] = Tables.of(settings.warehouse)
            assert {
                "events",
                "throttle_events",
                "chunk_events",
                "producer_id_stats",
                "backlog_checks",
                "cache_stats",
            } <= set(tables.rows)
        return self._calm[without]

    def configuration(self, folder: Path) -> dict[str, Any]:
        """What is not default: the fleet's limits, and room for partitions that are far apart."""
        return {
            "warehouse": str(folder / "warehouse"),
            "partitions": 2,
            "policies": self.policies,
            "idle_advance_ms": 600_000,
            "commit_interval_ms": dict.fromkeys(WRITES, 2_000),
        }


class Site:
    """A source and a warehouse of one disaster."""

    def __init__(
        self, records: Records, folder: Path, seed: int, kafka: Kafka | None = None
    ) -> None:
        """The source is a topic of the broker if there is one, else a folder of files."""
        self.records, self.folder, self.chance = records, folder, random.Random(seed)
        self.kafka = kafka
        self.topic = f"crash-{uuid4().hex}"
        self.sent: dict[int, tuple[str, int]] = {}
        """By the place of a record in the trace, its partition and offset in the topic."""
        self.without: frozenset[int] = frozenset()
        """Places of the records that the disaster takes away."""
        self.afterwards = ExitStack()
        """What is to be put back when the tables have been compared."""
        folder.mkdir(parents=True)
        if kafka is None:
            source: dict[str, Any] = {
                "format": "files",
                "path": str(records.events),
                "options": {"maxFilesPerTrigger": 2},
            }
        else:
            kafka.create_topic(self.topic, PARTITIONS)
            source = {
                "format": "kafka",
                "options": {
                    "kafka.bootstrap.servers": kafka.servers,
                    "subscribe": self.topic,
                    "maxOffsetsPerTrigger": 2_000,
                },
            }
        self.config = folder / "weir.yaml"
        self.write_config(source=source)

    def write_config(self, **changed: Any) -> None:
        """Change keys of the configuration."""
        found = {} if not self.config.exists() else yaml.safe_load(self.config.read_text())
        whole = {**self.records.configuration(self.folder), **found, **changed}
        self.config.write_text(yaml.safe_dump(whole))

    @property
    def settings(self) -> Settings:
        """The configuration as it is now."""
        return load_settings(self.config)

    @property
    def warehouse(self) -> Path:
        """The folder of the tables."""
        return Path(self.settings.warehouse)

    def part_archive(self) -> None:
        """Have the archive in a query of its own, from the first start on."""
        self.write_config(queries=[*self.settings.queries, ["archive"]])

    def produce(self, first: float = 0.0, last: float = 1.0, partitions: int = PARTITIONS) -> None:
        """Send a share of the records, those of a broker into one partition."""
        assert self.kafka is not None
        lines = self.records.lines
        places = range(round(first * len(lines)), round(last * len(lines)))
        part = [(lines[at][0] % partitions, lines[at][1]) for at in places]
        ends = Counter(partition for partition, _ in self.sent.values())
        for at, (partition, _) in zip(places, part, strict=True):
            self.sent[at] = (str(partition), ends[str(partition)])
            ends[str(partition)] += 1
        self.kafka.produce_to(self.topic, part)

    @contextmanager
    def running(
        self,
        master: str = LOCAL,
        variables: Mapping[str, str] | None = None,
        command: str = "run",
    ) -> Iterator[Service]:
        """`run` or another command, as a user starts it; nothing of it is left at the end of the
        block."""
        service = Service(self.config, command, master=master, variables=variables)
        try:
            yield service
        finally:
            service.close()

    def take_another_warehouse(self) -> None:
        """The remedy of last resort; everything is processed again."""
        self.write_config(warehouse=str(self.folder / "another"))

    def finish(self) -> None:
        """Process what there is to its end."""
        assert run(load_settings(self.config, ALONE), available_now=True) == 0

    def refused(self) -> list[str]:
        """The lines with which a start is refused, by exit code 2 and within its time."""
        with self.running() as run:
            return run.refused()

    def differences(self) -> list[str]:
        """Where the tables are not those of an uninterrupted run."""
        expected = self.records.calm(self.without)
        if self.kafka is not None:
            sent = sorted(place for at, place in self.sent.items() if at not in self.without)
            expected = Tables(expected.rows, sent)
        return Tables.of(str(self.warehouse)).differences(expected)


def _attacked(lines: Lines, start_ms: int, order: random.Random) -> Iterator[tuple[int, bytes]]:
    """The lines, and behind one of twenty a hostile one. None is so near to them in time that it
    may take the clocks along, or so near to the present that a job's verdict depends on it."""
    times = (start_ms - HOUR, start_ms + 2 * HOUR, start_ms + 100 * HOUR)
    for number, (broker, line) in enumerate(lines):
        yield broker, line
        if order.random() < 1 / ONE_OF:
            job = JOBS[order.choice(list(JOBS))]
            found = hostile(job, order, number, times, cluster=HOSTILE)
            if found:  # an empty line of a file is no record
                yield broker, found


def write(lines: Sequence[bytes], folder: Path) -> None:
    """Write the lines into files, each a little younger than the one before."""
    folder.mkdir(parents=True)
    for number in range(FILES):
        first, last = (n * len(lines) // FILES for n in (number, number + 1))
        file = folder / f"events-{number:02}.jsonl"
        file.write_bytes(b"".join(line + b"\n" for line in lines[first:last]))
        os.utime(file, (1_000_000_000 + number,) * 2)
