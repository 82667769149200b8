"""One Spark session for the whole suite, and the environment that it and its workers start in."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Before the first import of pyspark or numba: both read their environment only once.
os.environ.update(
    PYSPARK_PYTHON=sys.executable,
    PYSPARK_DRIVER_PYTHON=sys.executable,
    PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    SPARK_CONF_DIR=str(ROOT / "conf"),
    SPARK_LOCAL_IP="127.0.0.1",
    OMP_NUM_THREADS="1",
    # A JVM of a few minutes on few cores: the second compiler and parallel collectors cost more
    # than they give. Halves the time of a suite that is mostly starts.
    WEIR_JAVA_OPTIONS="-Xss4m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    TZ="UTC",
)
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".pytest_cache" / "numba"))
os.environ.pop("SPARK_HOME", None)
time.tzset()

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.settings import Settings


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that every test shares: local[2], two shuffle partitions."""
    from app.session import build_session
    from app.settings import load_settings

    session = build_session(load_settings(overrides={"partitions": 2}), "weir-tests")
    yield session
    session.stop()


@pytest.fixture
def tmp_warehouse(tmp_path: Path) -> str:
    """The path of a warehouse that does not exist yet."""
    return str(tmp_path / "warehouse")


@pytest.fixture
def make_settings(tmp_warehouse: str) -> Callable[..., Settings]:
    """Settings on a warehouse of this test's own; keywords are keys of the configuration.

    Alerts are judged beside a run only where a test asks for it: their process takes a second.
    """
    from app.settings import load_settings

    def make(**overrides: Any) -> Settings:
        return load_settings(None, {
            "warehouse": tmp_warehouse, "partitions": 2, "alerts": {"interval_ms": 0}, **overrides
        })

    return make
