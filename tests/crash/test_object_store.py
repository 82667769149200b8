"""A run whose warehouse is in an object store, a real S3 server on loopback: killed, and a second one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.crash.service import Submitted, batches
from tests.crash.tables import ALONE, Tables
from tests.support.servers.process import serving
from tests.support.servers.s3 import BUCKET, S3, SECRET, connector

NAME = "stored"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[S3]:
    """A server of this test. Skips where none can start."""
    with serving(lambda: S3(tmp_path), "S3 server") as server:
        yield server


def test_killed_on_an_object_store_a_run_goes_on_to_the_rows_of_a_calm_one(
    make_config: Callable[[str], Path], calm: Tables, store: S3, tmp_path: Path
) -> None:
    config = make_config(NAME)
    document = yaml.safe_load(config.read_text("utf-8"))
    options = {**store.options, "AWS_SECRET_ACCESS_KEY": "${env:WEIR_TEST_STORE}"}
    document |= {"warehouse": f"s3a://{BUCKET}/{NAME}", "storage_options": options, **ALONE}
    config.write_text(yaml.safe_dump(document), "utf-8")
    objects, jars = str(store.data / BUCKET / NAME), connector()

    def start(number: int, *options: str) -> Submitted:
        return Submitted(
            ["--jars", jars, "run", "--config", str(config), *options],
            tmp_path / f"{number}.log",
            variables={"WEIR_TEST_STORE": SECRET},
        )

    first = start(1)
    try:
        first.wait(lambda: batches(objects, "govern", "commits") >= 1, "a first batch")
        first.kill()  # before the time at which silent keys are decided
    finally:
        first.close()
    second = start(2, "--available-now")
    try:
        second.wait(lambda: "starting Spark" in second.said, "the lease of the next run")
        third = start(3)
        refusal = " ".join(third.refused(300.0))
        second.end_well()
    finally:
        second.close()
    assert f"s3a://{BUCKET}/{NAME}" in refusal, refusal
    assert Tables.of(objects).differences(calm) == []
    assert SECRET not in first.said + second.said + third.said
