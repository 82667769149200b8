"""What the end of a query means to the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.config.settings import Settings
from app.errors import UserError
from app.run.failures import (
    ArchiveBlocked,
    Passing,
    QueryFailed,
    RecordsGone,
    WorkerDied,
    WrongPort,
    failure,
)
from app.tables import manifest
from app.tables.small_files import Damaged

MakeSettings = Callable[..., Settings]


@pytest.fixture
def settings(make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A Kafka source with a secret from the environment and one written out."""
    monkeypatch.setenv("WEIR_TEST_SECRET", "hush-hush")
    return make_settings(
        source={
            "format": "kafka",
            "options": {
                "kafka.bootstrap.servers": "127.0.0.1:9092",
                "subscribe": "events",
                "kafka.sasl.jaas.config": 'x required password="${env:WEIR_TEST_SECRET}";',
                "kafka.ssl.key.password": "plain-secret",
            },
        }
    )


@pytest.mark.parametrize("kind", [UserError, Damaged])
def test_an_error_for_the_user_crosses_spark_with_its_two_lines(
    settings: Settings, kind: type[UserError]
) -> None:
    text = (
        "[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure\n"
        "Traceback (most recent call last):\n"
        '  File "lines.py", line 1, in lines_of\n'
        f"{kind.__module__}.{kind.__name__}: /in/a.gz: cannot be read to its end: Truncated\n"
        "repair the file or remove it from the folder\n"
        "\n\tat org.apache.spark.Something\n"
    )
    reason = failure("archive", text, settings)
    assert isinstance(reason, UserError)
    assert str(reason).splitlines() == [
        "/in/a.gz: cannot be read to its end: Truncated",
        "repair the file or remove it from the folder",
    ]


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            "Caused by: org.apache.kafka.common.errors.TimeoutException: Timeout of 5000ms",
            Passing,
            "TimeoutException",
        ),
        (
            "Traceback (most recent call last):\napp.sources.ports.WrongAnswer: a.b:1: answers"
            " HTTP, it is no port of Kafka\n\n\tat b",
            WrongPort,
            "a.b:1: answers HTTP, it is no port of Kafka",
        ),
        (
            "java.lang.IllegalStateException: ... set source option 'failOnDataLoss' to false",
            RecordsGone,
            "query archive: Kafka no longer holds records that this run has not read yet\n"
            "give the topic a longer retention; with source.options.failOnDataLoss false they "
            "are skipped",
        ),
        (
            "Caused by: java.io.IOException: No space left on device",
            UserError,
            "query archive: no space left on the device of the warehouse\n"
            "make room and start again: the run continues where it was",
        ),
        (
            "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected",
            UserError,
            "query archive: another process has written to the warehouse at the same time"
            " (CONCURRENT_STREAM_LOG_UPDATE)\n"
            "only one run may work on the queries of a warehouse: stop the other one, then start again",
        ),
        (
            "_internal.CommitFailedError: Failed to commit transaction: 15",
            UserError,
            "query archive: another process has written to the warehouse at the same time"
            " (CommitFailedError)\n"
            "only one run may work on the queries of a warehouse: stop the other one, then start again",
        ),
        (
            "io.delta.exceptions.ConcurrentTransactionException: [DELTA_X] changed",
            UserError,
            "query archive: another process has written to the warehouse at the same time"
            " (ConcurrentTransactionException)\n"
            "only one run may work on the queries of a warehouse: stop the other one, then start again",
        ),
        (
            "OSError: Generic LocalFileSystem error: Read-only file system (os error 30)",
            UserError,
            "query archive: the warehouse has become read-only\n"
            "make it writable and start again: the run continues where it was",
        ),
        (
            "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly "
            "(crashed)\nCaused by: java.io.EOFException",
            WorkerDied,
            "Python worker exited unexpectedly",
        ),
        (
            "[X] failed\nCaused by: java.lang.Outer: a\n\tat b\nCaused by: java.lang.Inner: c",
            QueryFailed,
            "query archive: java.lang.Inner: c",
        ),
        (
            "[X] failed\nTraceback (most recent call last):\nIndexError: list index\n\n\tat b",
            QueryFailed,
            "query archive: IndexError: list index",
        ),
    ],
)
def test_each_failure_is_the_users_or_passes_or_is_ours(
    settings: Settings, text: str, kind: type[Exception], said: str
) -> None:
    reason = failure("archive", text, settings)
    assert type(reason) is kind
    assert str(reason) == said


def test_no_secret_is_in_the_message(settings: Settings) -> None:
    text = 'Caused by: x.Y: login x required password="hush-hush"; key plain-secret hush-hush'
    said = str(failure("archive", text, settings))
    assert "hush" not in said and "plain-secret" not in said
    assert said.startswith("query archive: x.Y: login ********")


def test_state_of_another_release_names_what_to_do(settings: Settings) -> None:
    """The error as it comes from the codec itself, through Spark."""
    from state.engine import codec

    try:
        codec.decode("rate_limits", 3, codec.encode("rate_limits", 2, {}))
    except codec.StateFormatError as error:
        text = f"Traceback\n  File\nstate.codec.StateFormatError: {error}\n\n\tat org.apache"
    reason = failure("govern", text, settings)

    assert isinstance(reason, UserError)
    assert str(reason).splitlines() == [
        "query govern: state of rate_limits has version 2, this release reads 3",
        *(
            "continue with the release that wrote it, or begin "
            + manifest.filled_anew(settings.location)
        ).splitlines(),
    ]


@pytest.mark.parametrize(
    ("reason", "same_device", "kind"),
    [
        ("No space left on device", True, UserError),
        ("Read-only file system", True, UserError),
        ("Permission denied", True, ArchiveBlocked),
        ("No space left on device", False, ArchiveBlocked),
    ],
)
def test_an_archive_that_cannot_be_written_is_left_out_unless_no_query_can_go_on(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    same_device: bool,
    kind: type[Exception],
) -> None:
    """Checkpoints on the same full disk cannot be written either."""
    events = Path(settings.warehouse, "events")
    events.mkdir(parents=True)
    device = 1 if same_device else 2

    def stat(path: Path, **_: object) -> SimpleNamespace:
        return SimpleNamespace(st_dev=device if path.name == "events" else 1)

    text = (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        f"app.tables.archive_files.ArchiveUnwritable: {events}: {reason}\n"
        "\n\tat org.apache.spark.Something\n"
    )
    monkeypatch.setattr(Path, "stat", stat)
    found = failure("govern", text, settings)
    monkeypatch.undo()
    assert type(found) is kind
    if kind is ArchiveBlocked:
        assert str(found) == f"{events}: {reason}"
    else:
        assert "\nmake " in str(found)


MEMORY = "java.lang.OutOfMemoryError: Java heap space\n"
ALLOCATED = (
    "\tat java.base/java.nio.ByteBuffer.allocate(ByteBuffer.java:363)\n"
    "\tat org.apache.kafka.common.memory.MemoryPool$1.tryAllocate(MemoryPool.java:30)\n"
    "\tat org.apache.kafka.common.network.NetworkReceive.readFrom(NetworkReceive.java:102)\n"
)


@pytest.mark.parametrize(
    "met",
    [
        MEMORY + ALLOCATED,
        "org.apache.kafka.common.network.InvalidReceiveException: Invalid receive (size = 1213486160)\n",
        "org.apache.kafka.clients.CorrelationIdMismatchException: Correlation id for response\n",
        "org.apache.kafka.common.protocol.types.SchemaException: Buffer underflow\n",
        "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed\n",
    ],
)
def test_a_port_that_turns_wrong_after_it_was_asked_is_no_internal_error(
    settings: Settings, met: str
) -> None:
    text = f"Query terminated with exception\n\tat org.apache.spark.X\nCaused by: {met}\tat a.B\n"
    reason = failure("govern", text, settings)
    assert isinstance(reason, WrongPort)
    assert str(reason).startswith("a broker's address does not answer as Kafka any more (")


def test_memory_that_is_short_for_another_reason_is_an_internal_error(settings: Settings) -> None:
    for at in ("\tat org.apache.spark.sql.X\n", "\tat org.apache.spark.X\n" + ALLOCATED[-9:]):
        assert isinstance(failure("govern", MEMORY + at, settings), QueryFailed)
