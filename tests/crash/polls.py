"""Polled feeds beside the files of all jobs: a part of the run killed at a moment that nobody chose,
again and again, in starts, batches and polls. Afterwards every record of every poll is in the archive
once, and the tables are those of a run over the same files of polls that nobody kills.
"""

from __future__ import annotations

import gzip
import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import yaml

from app import folders, sources
from app.config.settings import Settings, load_settings
from app.run.service import run
from tests.crash.kills import found_processes
from tests.crash.service import WORKER, Service
from tests.crash.site import Records, Site
from tests.crash.tables import ALONE, Tables
from tests.servers.kafka_groups import Cluster, now_ms, standing
from tests.spark.runners import table
from tests.support.servers.admin import AdminServer
from tests.support.servers.exporter import exporting
from tests.support.servers.kafka import Kafka
from tests.unit.sources.pulsar import documents

VICTIMS = ("jvm", "python", "worker")
CLUSTERS = ("k", "p")
FEEDS = ("kafka_groups", "kafka_producers", "kafka_quotas", "pulsar_admin")
QUERY = "govern-client_quotas"
"""That of all six jobs."""
EVERY_MS = 1_500
START_S = 16.0
"""A start until its first batch, and some seconds after it."""
BATCH_S = 2.0
LIVE = "producer_id_live"
"""A table that polls write themselves, each its rows once."""


class PolledSite(Site):
    """All jobs over files, and all that is polled: a broker of Kafka with its exporter, an admin
    interface of Pulsar."""

    def __init__(self, records: Records, folder: Path, seed: int, kafka: Kafka) -> None:
        super().__init__(records, folder, seed)
        with ExitStack() as opened:
            self.cluster = opened.enter_context(standing(kafka))
            pulsar = opened.enter_context(AdminServer())
            exporter = opened.enter_context(exporting())
            opened.enter_context(_living(self.cluster))
            self.afterwards.push(opened.pop_all())
        pulsar.answers["persistent/public/n1"] = [documents.TOPIC]
        pulsar.topic(
            documents.TOPIC.removeprefix("persistent://"),
            internal=documents.internal(),
            info=documents.info(),
            stats=documents.stats(),
        )
        polls = {"interval_ms": EVERY_MS, "timeout_ms": 10_000}
        admin = {"cluster": "p", "url": pulsar.url, "namespaces": ["public/n1"], "policies": []}
        (files,) = self.settings.model_dump(include={"source"})["source"]
        self.write_config(
            source=[
                {name: files[name] for name in ("format", "path", "options")},
                {
                    "format": list(FEEDS[:3]),
                    "cluster": "k",
                    "options": {"kafka.bootstrap.servers": kafka.servers},
                    "groups": polls,
                    "producers": polls,
                    "quotas": {**polls, "exporters": {"1": exporter}},
                },
                {"format": "pulsar_admin", "admin": {**admin, **polls}},
            ],
            idle_advance_ms=10_000,
        )

    def finish(self, drain: bool = True) -> None:
        """Process what there is to its end, without another poll; each feed has polled before."""
        if not self._has_polled():
            with self.running() as run:
                run.wait(self._has_polled, "a poll of each feed")
                run.stop()
        _without_polls(load_settings(self.config, ALONE))

    def _files(self) -> list[tuple[str, Path]]:
        """All files of polls, each with its feed."""
        files = folders.matching(self.warehouse, "_weir/polls/*/polls/*")
        return [(file.parent.parent.name.partition(".")[0], file) for file in files]

    def _has_polled(self) -> bool:
        written = (self.warehouse / LIVE / "_delta_log").is_dir()
        return written and {feed for feed, _ in self._files()} >= set(FEEDS)

    def polled(self) -> dict[str, list[dict[str, Any]]]:
        """The records of all files of polls, by feed."""
        found: dict[str, list[dict[str, Any]]] = {}
        for feed, file in self._files():
            lines = gzip.decompress(file.read_bytes()).splitlines()
            found.setdefault(feed, []).extend(map(json.loads, lines))
        return found

    def differences(self) -> list[str]:
        polled = self.polled()
        found = [f"{feed}: no poll" for feed in FEEDS if feed not in polled]
        events = Counter(
            (row["source_feed"], row["cluster"], row["seq"])
            for row in table(self.settings, "events").to_pylist()
            if row["cluster"] in CLUSTERS
        )
        for feed, records in polled.items():
            seqs = [record["seq"] for record in records]
            if seqs != list(range(len(seqs))):
                found.append(f"{feed}: numbers of {len(seqs)} records are not 0, 1, 2 …")
            there = Counter((feed, record["cluster"], record["seq"]) for record in records)
            mine = Counter({key: n for key, n in events.items() if key[0] == feed})
            found += [
                f"{feed}: {sum(more.values())} records {what}, first {min(more)}"
                for more, what in ((there - mine, "are missing"), (mine - there, "are too many"))
                if more
            ]
        tables = Tables.of(self.settings.warehouse)
        live = tables.rows.pop(LIVE)
        if len(set(live)) < len(live):
            found.append(f"{LIVE}: {len(live) - len(set(live))} rows are there twice")
        return found + tables.differences(self._calm())

    def _calm(self) -> Tables:
        """The tables of a run over the same files and polls that nobody kills."""
        folder = self.folder / "calm"
        config = {**yaml.safe_load(self.config.read_text()), **ALONE, "warehouse": str(folder)}
        shutil.copytree(self.warehouse / "_weir" / "polls", folder / "_weir" / "polls")
        settings = load_settings(None, config)
        _without_polls(settings)
        return Tables.of(settings.warehouse)


def _without_polls(settings: Settings) -> None:
    polls = sources.keep_polling
    sources.keep_polling = lambda *_: nullcontext()
    try:
        assert run(settings, available_now=True, drain=True) == 0
    finally:
        sources.keep_polling = polls


@contextmanager
def _living(cluster: Cluster) -> Iterator[None]:
    """Messages and commits meanwhile, so that polls differ."""
    stopping = threading.Event()

    def live() -> None:
        at = 0
        while not stopping.wait(0.7):
            cluster.produce(at % 2, 3, now_ms())
            if at % 2:
                cluster.commit("g", at)
            at += 1

    thread = threading.Thread(target=live)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def kill_anywhere(site: Site, count: int, said: Callable[[str], None] = print) -> None:
    """So many SIGKILLs, each of a part and at a moment by chance; a run whose worker was killed goes
    on."""
    chance, left = site.chance, count
    while left:
        with site.running() as run:
            began = time.monotonic()
            while left:
                victim = chance.choice(VICTIMS)
                early = chance.random() < 0.4 and victim != "worker"
                wait_s = chance.uniform(0.3, START_S) if early else chance.uniform(0, BATCH_S)
                if not early:
                    _next_batch(run)
                _sleep(run, began + wait_s - time.monotonic() if early else wait_s)
                said(f"kill {count - left + 1}: {victim} after {time.monotonic() - began:.1f} s")
                left -= 1
                if victim == "worker":
                    _kill(chance.choice(found_processes(run, WORKER)))
                    continue
                run.kill(run.driver if victim == "python" else None)
                break
            else:
                _next_batch(run)
                run.stop()


def _next_batch(run: Service) -> None:
    begun = run.batches(QUERY, "offsets")
    run.wait(lambda: run.batches(QUERY, "offsets") > begun, "a batch")


def _sleep(run: Service, seconds: float) -> None:
    until = time.monotonic() + seconds
    run.wait(lambda: time.monotonic() >= until)


def _kill(victim: psutil.Process) -> None:
    try:
        victim.kill()
    except psutil.NoSuchProcess:  # it has ended by itself: Spark keeps no more than it needs
        return
