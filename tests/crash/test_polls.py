"""SIGKILL of JVM, driver and Python workers at random moments, with all jobs and polled feeds."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.crash.polls import PolledSite, kill_anywhere
from tests.crash.site import Records
from tests.support.servers.kafka import Kafka

pytestmark = pytest.mark.kafka
BEFORE = timedelta(minutes=15)
"""The trace ends some minutes ago, so that its clocks are those of the polls."""


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_killed_anywhere_a_run_with_polls_goes_on_to_the_rows_of_one_that_was_not(
    kills: int, spark: object, kafka: Kafka, tmp_path: Path
) -> None:
    seed = int(os.environ.get("WEIR_SEED", time.time_ns() % 1_000_000))
    moments: list[str] = []
    records = Records(tmp_path / "records", start=datetime.now(UTC) - BEFORE)
    site = PolledSite(records, tmp_path / "site", seed, kafka)
    with site.afterwards:
        kill_anywhere(site, kills, moments.append)
        site.finish()
        found = site.differences()
        assert not found, "\n".join([f"WEIR_SEED={seed}", *moments, *found])
