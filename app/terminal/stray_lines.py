"""Filters Spark's standard error for `spark-submit.sh`: drops lines without information.

`python stray_lines.py [json]` passes on standard input until its end. With `json` every line is an
object with time, level and message: lines from outside the log are wrapped in one.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

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


def kept(lines: Iterable[str], as_json: bool) -> Iterator[str]:
    """The lines without noise; with `as_json` each is an object."""
    dying = False
    for line in lines:
        text = line.rstrip("\n")
        dying = text.startswith(DYING) or (dying and text.startswith(("\t", "Caused by: ")))
        if dying or text.startswith(NOISE) or (as_json and not text.strip()):
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
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"time": at, "level": "WARNING", "message": text}, ensure_ascii=False)


def main(as_json: bool) -> None:
    """Pass on standard input; signals are ignored, so that Spark's last lines pass, too."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[attr-defined]
    sys.stderr.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[attr-defined]
    for line in kept(sys.stdin, as_json):
        sys.stderr.write(line)
        sys.stderr.flush()


if __name__ == "__main__":
    main("json" in sys.argv[1:])
