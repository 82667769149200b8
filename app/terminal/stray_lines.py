"""Filters Spark's standard error for `spark-submit.sh`: drops lines without information.

`python stray_lines.py text|json [PIPE]` passes on standard input until its end. With `json` every
line is an object with time, level and message: lines from outside the log are wrapped in one. PIPE
is the path of standard input, which is removed at the end with its folder.
"""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

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
        yield (text if not as_json or _is_message(text) else _message(text)) + "\n"


def _is_message(text: str) -> bool:
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and {"time", "level", "message"} <= found.keys()


def _message(text: str) -> str:
    """A log message around a line that is none."""
    return json.dumps(
        {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": "WARNING",
            "message": text,
        },
        ensure_ascii=False,
    )


def main(log_format: str, pipe: str | None = None) -> None:
    """Pass on standard input; signals are ignored, so that Spark's last lines pass, too."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for stream in (sys.stdin, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
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
