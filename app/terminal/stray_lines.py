"""Filters Spark's standard error for `spark-submit.sh`: drops lines without information, escapes what
would move a cursor, and masks secrets, as Weir's own log does.

`python -m app.terminal.stray_lines text|json [PIPE]` passes on standard input until its end. With
`json` every line is an object with time, level and message: lines from outside the log are wrapped
in one. PIPE is the path of standard input, which is removed at the end with its folder.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.terminal.printable import in_json, printable
from app.terminal.secrets import without_secrets

ROOT = Path(__file__).resolve().parents[2]
NOISE = (
    # spark-submit always asks for the vector module, for linear algebra that Weir does not use.
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "Using Spark's default log4j profile: ",
    "Setting default log level to ",
    "To adjust logging level use sc.setLogLevel(newLevel).",
)

DYING = 'Exception in thread "stream execution thread for '
"""Begins the stack trace of a query that ends after Spark has stopped, at Ctrl-C. Why a query
failed is reported by the run."""

TRACE = ("\t", "Caused by: ")
"""Begin its other lines."""
OWN = "weir: "
"""Begins a line of Weir, which the driver may write between two of a stack trace."""


def kept(lines: Iterable[str], as_json: bool) -> Iterator[str]:
    """The lines without noise; with `as_json` each is an object."""
    dying = False
    for line in lines:
        text = line.rstrip("\n")
        ours = text.startswith(OWN)
        dying = text.startswith(DYING) or (dying and (ours or text.startswith(TRACE)))
        dropped = dying or text.startswith(NOISE) or (as_json and not text.strip())
        if dropped and not ours:
            continue
        yield (_object(text) if as_json else _plain(text)) + "\n"


def _plain(text: str) -> str:
    """A line of text; those of a stack trace begin with tabs."""
    text = without_secrets(text)
    rest = text.lstrip("\t")
    return text[: len(text) - len(rest)] + printable(rest)


def _object(text: str) -> str:
    """A log message, or one around a line that is none."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"time", "level", "message"} <= found.keys():
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        found = {"time": at, "level": "WARNING", "message": text}
    return in_json(json.dumps(without_secrets(found), ensure_ascii=False))


def start(python: str, words: list[str], **streams: Any) -> subprocess.Popen[bytes]:
    """Start the filter, with the words of its command line."""
    command = [python, "-P", "-m", "app.terminal.stray_lines", *words]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **streams)


def main(log_format: str, pipe: str | None = None) -> None:
    """Pass on standard input; signals are ignored, so that Spark's last lines pass, too."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for stream in (sys.stdin, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    for line in kept(sys.stdin, log_format == "json"):
        with suppress(OSError):  # a log that cannot be written costs its lines, not the run
            sys.stderr.write(line)
            sys.stderr.flush()
    if pipe is not None:
        with suppress(OSError):
            Path(pipe).unlink()
            Path(pipe).parent.rmdir()


if __name__ == "__main__":
    main(*sys.argv[1:])
