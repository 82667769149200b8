"""Ctrl-C ends a command with Spark in one line, whatever it is at work on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.service import OF_PYTEST, Submitted

AT_WORK = {" events: 10 minutes": "Spark starts", " started: ": "the queries run"}
# The JVM ends at the same signal: it runs as a user has it.
OF_SUITE = (*OF_PYTEST, "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")


@pytest.mark.parametrize("sign", AT_WORK, ids=AT_WORK.get)
def test_ctrl_c_in_the_demo_is_one_line_and_no_stack_trace(sign: str, tmp_path: Path) -> None:
    words = ["demo", "--out", str(tmp_path / "demo")]
    with closing(Submitted(words, tmp_path / "said.log", without=OF_SUITE)) as demo:
        demo.wait(lambda: sign in demo.out + demo.said, sign)
        demo.interrupt()
        code, said = demo.code(60), demo.out + demo.said
    last = [line for line in said.splitlines() if "interrupted" in line]
    assert len(last) == 1 and last[0].endswith("interrupted"), said
    assert code == 130
    for word in ("Traceback", "Py4J", "internal error", "Exception", "ERROR:"):
        assert word not in said, said
