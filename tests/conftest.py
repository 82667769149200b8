"""One Spark session for the whole suite, and the environment that it and its workers start in."""

from __future__ import annotations

import functools
import gc
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import hypothesis
import pytest

from tests.support.effort import QUICK, SLOW, examples

ROOT = Path(__file__).resolve().parents[1]
# A JVM of a few minutes on few cores: the second compiler, parallel collectors and the verification
# of the byte code of released jars cost more than they give. Halves the time of a suite that is
# mostly starts.
OF_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)

# Before the first import of pyspark or numba: both read their environment only once.
os.environ.update(
    PYSPARK_PYTHON=sys.executable,
    PYSPARK_DRIVER_PYTHON=sys.executable,
    PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    SPARK_CONF_DIR=str(ROOT / "conf"),
    SPARK_LOCAL_IP="127.0.0.1",
    OMP_NUM_THREADS="1",
    PYDANTIC_DISABLE_PLUGINS="true",
    WEIR_JAVA_OPTIONS=f"-Xss4m {OF_JAVA}",  # of sessions of these processes, and of servers
    SPARK_SUBMIT_OPTS=OF_JAVA,  # of commands that are submitted
    SPARK_LAUNCHER_OPTS=OF_JAVA,
    TZ="UTC",
)
# What a machine is busy with is no property of the code.
hypothesis.settings.register_profile("weir", deadline=None, max_examples=examples(100))
hypothesis.settings.load_profile("weir")
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".pytest_cache" / "numba"))
os.environ.pop("SPARK_HOME", None)
# Hundreds of processes of Weir start: each would compile its sources again, half a second of CPU.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
time.tzset()

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--regenerate` writes golden files in place of comparing with them; a reviewer reads the diff."""
    parser.addoption("--regenerate", action="store_true", help="write the golden files anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with a file of tests/data/golden."""

    def compare(name: str, text: str) -> None:
        path = ROOT / "tests" / "data" / "golden" / name
        if request.config.getoption("--regenerate"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        expected = path.read_text(encoding="utf-8")
        assert text == expected, "pytest --regenerate writes it anew; review the difference"

    return compare


LONG = (
    "tests/spark/test_cluster.py",
    "pulsar",
    "kafka",
    "tests/crash/",
    "tests/spark/test_three_runners.py",
    "tests/spark/upgrade/",
    "tests/spark/",
    "tests/servers/",
    "tests/unit/test_extreme_values.py",
    "tests/unit/contract/test_redaction.py",
    "tests/unit/run/maintenance/",
    "tests/unit/state/contract/",
    "tests/unit/setup/",
    "tests/unit/show/",
)
"""What takes longest is begun first, so that the processes of a run end together. The last of three
or more begins at the end, with what never waits for a broker: it computes while the others wait."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Several processes share the tests by file, from both ends; those with the suite's Pulsar broker
    are all of one process, those with its Kafka broker of two."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid.partition("::")[0])

        def _assign_work_unit(self, node: Any) -> None:
            if self.numnodes > 2 and node.gateway.id == f"gw{self.numnodes - 1}":
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    return ByGroup(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow unless it is asked for, and Java where only what is quick is; the order
    is that of their beginning."""

    def is_out(item: pytest.Item) -> bool:
        slow = item.get_closest_marker("slow") is not None
        java = {"spark", *BROKERS} & {*getattr(item, "fixturenames", ())}
        return (slow and not SLOW) or (QUICK and bool(java))

    out = {item for item in items if is_out(item)}
    config.hook.pytest_deselected(items=list(out))
    items[:] = [item for item in items if item not in out]
    items.sort(key=lambda item: _turn(_group(item.location[0])))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What there is now stays to the end: garbage is no more looked for in it, which takes a tenth of a
    second each time with the tests of a few files alone."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Else modules of C++ would report what they were made of as leaked."""
    gc.unfreeze()


BROKERS = {
    "kafka": re.compile(r"\bkafka: Kafka\b|\bshared_kafka\b|\bservers\.kafka_groups\b"),
    "pulsar": re.compile(r"\bsupport\.servers\.pulsar\b"),
}
"""Fixtures of brokers that files share, and what a file has that takes one."""


@functools.cache
def brokers(file: str) -> tuple[str, ...]:
    """Those of `BROKERS` that a file has."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return tuple(name for name, sign in BROKERS.items() if sign.search(text))


@functools.cache
def _group(file: str) -> str:
    broker = max(brokers(file), default=None)  # a file with both starts Kafka once more
    if broker is not None:
        return f"kafka {crc32(file.encode()) % 2}" if broker == "kafka" else broker
    text = (ROOT / file).read_text(encoding="utf-8")
    # those that compare with the same run
    return "tests/crash/calm" if re.search(r"\bcalm: Tables\b", text) else file


def _turn(group: str) -> tuple[int, str]:
    at = (number for number, prefix in enumerate(LONG) if group.startswith(prefix))
    return next(at, len(LONG)), group


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI every server is there: what would be skipped fails."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr}; with CI set nothing is skipped"
    return report


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that every test shares: local[2], two shuffle partitions.

    The processes in which Spark plans sources stay for the next run, which takes 4 s of CPU to start
    them; runs in processes of their own end them.
    """
    from app.config.settings import load_settings
    from app.run.session import build_session

    session = build_session(load_settings(overrides={"partitions": 2}), "weir-tests")
    with pytest.MonkeyPatch.context() as kept:
        kept.setattr("app.run.queries.end_planning", lambda _: None)
        yield session
    session.stop()


@pytest.fixture(autouse=True)
def _two_partitions(request: pytest.FixtureRequest) -> Iterator[None]:
    """A run of a test sets the partitions of the session that the tests after it share."""
    yield
    if "spark" in request.fixturenames:
        spark: SparkSession = request.getfixturevalue("spark")
        spark.conf.set("spark.sql.shuffle.partitions", "2")


@pytest.fixture(autouse=True)
def _jvm_lives_on() -> Iterator[None]:
    """A test whose end the JVM does not see fails, rather than the next one that needs it."""
    before = _jvm_code()
    yield
    after = _jvm_code()
    if before is None and after is not None:
        pytest.fail(f"the JVM of the session that tests share has ended: exit code {after}")


def _jvm_code() -> int | None:
    """Exit code of the JVM of this process; None while it lives, or there is none."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process.poll() if process is not None else None


@pytest.fixture
def tmp_warehouse(tmp_path: Path) -> str:
    """The path of a warehouse that does not exist yet."""
    return str(tmp_path / "warehouse")


@pytest.fixture
def make_settings(tmp_warehouse: str) -> Callable[..., Settings]:
    """Settings on a warehouse of this test's own; keywords are keys of the configuration.

    Alerts are judged beside a run only where a test asks for it: their process takes a second.
    """
    from app.config.settings import load_settings

    def make(**overrides: Any) -> Settings:
        return load_settings(
            None, {"warehouse": tmp_warehouse, "partitions": 2, "alerts": None, **overrides}
        )

    return make
