"""Where disasters strike one after the other: one Spark session and one broker for all of them."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

from app.config.settings import load_settings
from app.run.session import build_session
from tests.crash.disaster import Disaster
from tests.crash.service import Failed
from tests.crash.site import Records, Site
from tests.support.servers.kafka import Kafka


class Grounds:
    """The records, the session in which runs are finished, and the broker once one is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._records: dict[int, Records] = {}
        self._kafka: Kafka | None = None
        self._ends = ExitStack()
        self._count = 0

    def __enter__(self) -> Grounds:
        spark = build_session(load_settings(overrides={"partitions": 2}), "weir-crash")
        self._ends.callback(spark.stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def strike(self, disaster: Disaster, seed: int) -> list[str]:
        """What is not as it should be after a disaster; nothing if all is."""
        self._count += 1
        folder = self._folder / f"{self._count}-{disaster.name}"
        for old in [known for known in self._records if known != seed]:
            del self._records[old]
            shutil.rmtree(self._folder / f"records-{old}", ignore_errors=True)
        if seed not in self._records:
            self._records[seed] = Records(self._folder / f"records-{seed}", seed)
        site = Site(self._records[seed], folder, seed, self._broker(disaster))
        with site.afterwards:
            try:
                disaster.strike(site)
            except Failed as failed:
                return [str(failed)]
            found = site.differences()
        shutil.rmtree(folder, ignore_errors=True)
        return found

    def _broker(self, disaster: Disaster) -> Kafka | None:
        if disaster.source != "kafka":
            return None
        if self._kafka is None:
            self._kafka = Kafka(self._folder / "kafka")
            self._ends.callback(self._kafka.stop)
        if not self._kafka.running:
            self._kafka.start()
        return self._kafka
