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
from collections.abc import Callable, Mapping, Sequence

from app.errors import UserError
from app.setup.launch import line as lines
from app.setup.launch.home import EVERYWHERE, Home, with_path
from app.setup.launch.line import Line
from app.setup.launch.machine import require_java, require_spark_home
from app.setup.launch.submission import COMPILED_AHEAD, MAIN, Submission, log_format, tidy_words
from app.stream.jars import coordinates
from app.terminal import driver_stderr

BUILD = 75
"""Exit code: the environment must be built first."""
BUILD_AND_COMPILE = 76
"""Exit code: the same, and the cores will be needed."""
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
)
USAGE = """\
Commands: {commands}.
--dry-run COMMAND ...   print the line that would run, and stop
--prepare               prepare the environment, the jars and the compiled cores, and stop
Every option of spark-submit (--master, --conf, --queue ...) is passed through.
"""


def main(arguments: Sequence[str], home: Home, built: bool = True) -> int:
    """Run a command line; its exit code, or BUILD or BUILD_AND_COMPILE where it needs an
    environment that is not `built`. A command under Spark replaces this process."""
    return _reported(lambda: _start(lines.read(arguments), home, built))


def compile_cores(arguments: Sequence[str], home: Home) -> int:
    """Compile the cores ahead of a command line, unless it has a mistake, which its own start
    reports; the exit code."""

    def compiled() -> int:
        line = lines.read(arguments)
        code = 0 if line.prepare else _preflight(line, home, stderr=subprocess.DEVNULL)
        if not code:
            home.prepare_cores()
        return code

    return _reported(compiled)


def _reported(work: Callable[[], int]) -> int:
    """The exit code of some work; what the user can fix is reported."""
    try:
        return work()
    except UserError as error:
        first, *others = str(error).split("\n")
        print(f"weir: {first}", *(f"      {text}" for text in others), sep="\n", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("weir: interrupted", file=sys.stderr)
        return INTERRUPTED


def _start(line: Line, home: Home, built: bool) -> int:
    if not built and line.asks:
        print(USAGE.format(commands=" ".join(lines.WITH_SPARK + lines.WITHOUT_SPARK)), end="")
        return 0
    if not built and not line.dry_run:
        compiles = line.prepare or line.command in COMPILED_AHEAD or _runs_cores(line)
        return BUILD_AND_COMPILE if compiles else BUILD
    if not (line.needs_spark or line.prepare):
        return _run_here(line, home)
    return _run_on_spark(line, home)


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
    if _runs_cores(line) and not line.help:
        home.prepare_cores()
    sys.argv[:] = [str(MAIN), *line.words]
    runpy.run_path(str(MAIN), run_name="__main__")
    return 0


def _run_on_spark(line: Line, home: Home) -> int:
    os.environ.update(with_path(os.environ), WEIR_LOG_FORMAT=log_format(line))
    delta = coordinates()[0]
    spark, scala = delta.split(":")[1].split("_")[1:]
    require_java(spark)
    if os.environ.get("SPARK_HOME"):
        require_spark_home(os.environ["SPARK_HOME"], spark, scala)
    submission = Submission(line, home, prepares=not line.dry_run)
    if line.dry_run:
        if not line.prepare:
            words = submission.words()
            given = os.environ | submission.environment
            variables = [f"{name}={given[name]}" for name in SHOWN if given.get(name)]
            print(printed([*variables, *words]))
        return 0
    if not (line.prepare or line.alone):
        code = _preflight(line, home)
        if code:
            return code
    home.prepare_jars(submission.jar_options())
    if line.prepare:
        home.prepare_cores()
        return 0
    words = submission.words()
    _become(words, os.environ | submission.environment, line, home)
    return 0


def _preflight(line: Line, home: Home, stderr: int | None = None) -> int:
    """Mistakes of the line and of the configuration: Python finds them in a second, Spark would
    take ten. The exit code of the command."""
    where = "elsewhere" if Submission(line, home, prepares=False).on_cluster else "here"
    return subprocess.run(
        [home.python, str(MAIN), *line.words],
        check=False,
        stderr=stderr,
        env={**os.environ, **EVERYWHERE, "WEIR_PREFLIGHT": where},
    ).returncode


def printed(words: Sequence[str]) -> str:
    """Words as a shell reads them again."""
    plain = re.compile(r"[\w./:=,@%+-][\w./:=,@%+#-]*", re.ASCII)
    return " ".join(word if plain.fullmatch(word) else shlex.quote(word) for word in words)


def _become(words: Sequence[str], environment: Mapping[str, str], line: Line, home: Home) -> None:
    """Replace this process: a signal for it reaches Spark, which passes it on to the driver.

    Spark gives Python's output to its own; all that a run writes there is its log.
    """
    environment = dict(environment)
    if not line.alone:
        is_run = line.command == "run"
        if is_run and sys.stderr.isatty():
            environment["WEIR_TERMINAL"] = "1"
        as_json = is_run and environment["WEIR_LOG_FORMAT"] == "json"
        reading, writing, path = driver_stderr.pipe()
        if path is not None:
            environment[driver_stderr.VARIABLE] = str(path)
        subprocess.Popen(tidy_words(home, as_json, path), stdin=reading, stdout=sys.stderr.fileno())
        os.close(reading)
        for stream in (1, 2) if is_run else (2,):
            os.dup2(writing, stream)
        os.close(writing)
    # Python ignores it, and what is ignored stays so in the next program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execve(words[0], list(words), environment)
