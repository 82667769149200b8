"""A driver that runs further commands in the session of the first: `several.py MAIN WORDS ...`, as
Spark starts MAIN.

The variable WEIR_THEN names a file with a list of further commands, as JSON; their exit codes and
outputs are written beside it. A start of a cluster serves all of them.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from pyspark.sql import SparkSession

from app.cli import main
from app.run import session


def several(program: str, words: list[str], then: Path) -> int:
    """The exit code of the first command; the others run if that is 0."""
    stop, session.stop_session = session.stop_session, lambda spark: None
    sys.argv[:] = [program, *words]
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            return int(ended.code)
    for number, command in enumerate(json.loads(then.read_text())):
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            code = main(["--debug", *command])
        answer = {"code": code, "out": out.getvalue(), "err": err.getvalue()}
        then.with_name(f"{number}-{then.name}").write_text(json.dumps(answer))
    running = SparkSession.getActiveSession()
    assert running is not None
    stop(running)
    return 0


if __name__ == "__main__":
    sys.exit(several(sys.argv[1], sys.argv[2:], Path(os.environ["WEIR_THEN"])))
