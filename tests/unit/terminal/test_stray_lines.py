"""What Spark writes around its log: lines without information are dropped, all others pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.terminal.stray_lines import kept, start
from tests.support.small_disk import fill, small_disk

DYING = """\
weir: interrupted
Exception in thread "stream execution thread for archive [id = 0b, runId = bc]" x.Error:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)
Caused by: org.apache.spark.rpc.RpcEnvStoppedException: RpcEnv already stopped.
\t... 8 more
2026-11-22T17:27:02.638Z ERROR   TaskSetManager: Task 0 failed
\tat somewhere.else
Exception in thread "main" java.lang.OutOfMemoryError
\tat a.place
"""


def test_a_query_that_dies_after_spark_leaves_no_stack_trace() -> None:
    lines = DYING.splitlines(keepends=True)
    assert list(kept(lines, as_json=False)) == [lines[0], *lines[5:]]
    between = [*lines[1:3], lines[0], *lines[3:]]
    assert list(kept(between, as_json=False)) == [lines[0], *lines[5:]]


def test_as_json_every_line_is_an_object() -> None:
    lines = [
        "WARNING: Using incubator modules: jdk.incubator.vector\n",
        "\n",
        "plain\n",
        '{"time": "t", "level": "INFO", "message": "m"}\n',
    ]
    found = [json.loads(line) for line in kept(lines, as_json=True)]
    assert [(each["level"], each["message"]) for each in found] == [
        ("WARNING", "plain"),
        ("INFO", "m"),
    ]


def test_a_log_on_a_full_disk_loses_lines_and_goes_on(tmp_path: Path) -> None:
    with small_disk(tmp_path, "1m"):
        with (tmp_path / "log").open("w") as log:
            process = start(sys.executable, ["text"], stdin=subprocess.PIPE, stderr=log)
        assert process.stdin is not None
        ballast = fill(tmp_path)
        process.stdin.write(b"lost\n" * 100_000)  # more than a pipe has room for
        ballast.unlink()
        process.stdin.write(b"kept\n" * 100_000 + b"the last one\n")
        process.stdin.close()
        assert process.wait(60) == 0
        assert (tmp_path / "log").read_text().endswith("kept\nthe last one\n")


NAMES = {
    "a\rb": "a\\rb",
    "a\x00b": "a\\x00b",
    "a\x1b[2J\x9b31m": "a\\x1b[2J\\x9b31m",
    "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029": r"\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029",
    "\u202egnp.\u2066x": r"\u202egnp.\u2066x",
    "at http://me:hush@h/?token=hush": "at http://********:********@h/?********",
    "password=hush": "password=********",
    "é💥": "é💥",
    "<default>%s{}$(id)`": "<default>%s{}$(id)`",
}


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize(("name", "shown"), NAMES.items(), ids=map(ascii, NAMES))
def test_a_line_of_spark_moves_no_cursor_and_has_no_secret(
    log_format: str, name: str, shown: str
) -> None:
    """Through the process that spark-submit.sh starts."""
    given = f"W {name}\n\tat {name}\n".encode()
    if log_format == "json":
        given += json.dumps({"time": "t", "level": "ERROR", "message": name}).encode() + b"\n"
        given += json.dumps({"time": "t"}, ensure_ascii=False).encode() + b"\n"
    with start(sys.executable, [log_format], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as ran:
        said = ran.communicate(given + b"\xff\xfe unfinished")[1].decode().split("\n")
    assert all(line.removeprefix("\t").isprintable() for line in said)
    if log_format == "text":
        assert said == [f"W {shown}", f"\tat {shown}", "\ufffd\ufffd unfinished", ""]
        return
    *lines, end = said
    messages = [json.loads(line).get("message") for line in lines]
    exact = name if "hush" not in name else shown
    assert messages == [
        f"W {exact}",
        f"\tat {exact}",
        exact,
        '{"time": "t"}',
        "\ufffd\ufffd unfinished",
    ]
    assert end == ""
