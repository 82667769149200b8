"""Starts a command line: checks it, prepares what it needs, and becomes its process."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.errors import UserError
from app.jars import coordinates
from app.jvm import POLLS_ALONE
from app.setup.launch import environment
from app.setup.launch import line as lines
from app.setup.launch.home import EVERYWHERE, ROOT, Home, with_path
from app.setup.launch.line import Line
from app.setup.launch.machine import require_java, require_spark_home
from app.setup.launch.submission import MAIN, Submission, log_format
from app.terminal import driver_stderr, stray_lines

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
COMPILING = (["bakeoff"], ["policy", "suggest"])
"""Commands without Spark that run cores, by the words that they begin with."""
SHOWN = (
    "TZ",
    "OMP_NUM_THREADS",
    "NUMBA_CACHE_DIR",
    "PYTHONPATH",
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "SPARK_LOCAL_IP",
    "WEIR_JARS",
)
USAGE = """\
Commands: {commands}.
--dry-run COMMAND ...   print the line that would run, and stop
--prepare               prepare the environment, the jars and the compiled cores, and stop
Every option of spark-submit (--master, --conf, --queue ...) before the command is passed through.
"""


def main(arguments: Sequence[str], home: Home, lock: Path | None = None) -> int:
    """Run a command line; its exit code. A command under Spark replaces this process.

    `lock` is that of a checkout, whose environment is built first.
    """
    try:
        line = lines.read(arguments)
        if lock is None or line.dry_run or _in_environment(home, lock):
            return _start(line, home)
        if line.help and not environment.is_ready(home, lock):
            print(USAGE.format(commands=" ".join(lines.COMMANDS)), end="")
            return 0
        compiles = line.prepare or line.needs_spark or _runs_cores(line)
        environment.prepare(home, lock, compiles=compiles)
        os.execv(home.python, [home.python, "-P", "-m", __package__, *arguments])
    except (UserError, OSError) as error:
        first, *others = str(error).split("\n")
        print(f"weir: {first}", *(f"      {text}" for text in others), sep="\n", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("weir: interrupted", file=sys.stderr)
        return INTERRUPTED


def _in_environment(home: Home, lock: Path) -> bool:
    """Whether this process runs in the environment, and that is complete."""
    inside = Path(sys.prefix).resolve() == home.folder.resolve()
    return inside and environment.is_ready(home, lock)


def _start(line: Line, home: Home) -> int:
    if line.needs_spark or line.prepare:
        return _run_on_spark(line, home)
    return _run_here(line, home)


def _runs_cores(line: Line) -> bool:
    """Whether a command without Spark runs cores."""
    return any(line.words[: len(words)] == words for words in COMPILING)


def _run_here(line: Line, home: Home) -> int:
    """A command without Spark, in this process."""
    if line.dry_run:
        print(printed([home.python, str(MAIN), *line.words]))
        return 0
    os.environ.update(with_path(os.environ) | EVERYWHERE | {"NUMBA_CACHE_DIR": str(home.cores)})
    time.tzset()
    _name_jars(home)
    if _runs_cores(line) and not line.help:
        home.prepare_cores()
    sys.argv[:] = [str(MAIN), *line.words]
    runpy.run_path(str(MAIN), run_name="__main__")
    return 0


def _name_jars(home: Home) -> None:
    """Where a command finds what it needs if it starts a JVM for Kafka's client."""
    os.environ.setdefault("SPARK_CONF_DIR", f"{ROOT}/conf")
    jars = home.jars()
    if jars:
        os.environ.setdefault("WEIR_JARS", str(jars[0].parent))


def _run_on_spark(line: Line, home: Home) -> int:
    os.environ.update(with_path(os.environ), WEIR_LOG_FORMAT=log_format(line))
    submission = Submission(line, home, prepares=not line.dry_run)
    if not (line.prepare and os.environ.get("WEIR_JARS")):  # then no Java runs
        _require_machine()
    if line.dry_run:
        words = submission.words()
        given = os.environ | submission.environment
        variables = [f"{name}={given[name]}" for name in SHOWN if given.get(name)]
        print(printed([*variables, *words]))
        return 0
    code = 0 if line.prepare or line.alone else _preflight(line, home)
    submission.polls_alone = code == POLLS_ALONE
    if code not in (0, POLLS_ALONE):
        return code
    home.prepare_jars(submission.jar_options())
    if line.prepare:
        home.prepare_cores()
        return 0
    words = submission.words()
    _become(words, os.environ | submission.environment, line, home)
    return 0


def _require_machine() -> None:
    """UserError where the Java or the Spark of this machine do not fit the jars."""
    spark, scala = coordinates()[0].split(":")[1].split("_")[1:]
    require_java(spark)
    if os.environ.get("SPARK_HOME"):
        require_spark_home(os.environ["SPARK_HOME"], spark, scala)


def _preflight(line: Line, home: Home) -> int:
    """Mistakes of the line and of the configuration: Python finds them in a second, Spark would
    take ten. The exit code of the command."""
    where = "elsewhere" if Submission(line, home, prepares=False).on_cluster else "here"
    return subprocess.run(
        [home.python, str(MAIN), *line.words],
        check=False,
        env={**os.environ, **EVERYWHERE, "WEIR_PREFLIGHT": where},
    ).returncode


def printed(words: Sequence[str]) -> str:
    """Words as a shell reads them again."""
    plain = re.compile(r"[\w./:=,@%+-][\w./:=,@%+#-]*", re.ASCII)
    return " ".join(word if plain.fullmatch(word) else shlex.quote(word) for word in words)


def _become(words: Sequence[str], variables: Mapping[str, str], line: Line, home: Home) -> None:
    """Replace this process: a signal for it reaches Spark, which passes it on to the driver.

    Spark gives Python's output to its own; all that a run writes there is its log.
    """
    variables = dict(variables)
    if not line.alone:
        is_run = line.command == "run"
        as_json = is_run and variables["WEIR_LOG_FORMAT"] == "json"
        reading, writing, path = driver_stderr.pipe()
        if path is not None:
            variables[driver_stderr.VARIABLE] = str(path)
        words_of_filter = ["json" if as_json else "text", *([] if path is None else [str(path)])]
        stray_lines.start(home.python, words_of_filter, stdin=reading, stdout=sys.stderr.fileno())
        os.close(reading)
        for stream in (1, 2) if is_run else (2,):
            os.dup2(writing, stream)
        os.close(writing)
    # Python ignores it, and what is ignored stays so in the next program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execve(words[0], list(words), variables)
