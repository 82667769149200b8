"""Reads policies, writes them in a format, and names what it cannot express."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from app.config.levels import compiled
from app.errors import UserError
from app.show.policy.export.exported import Document, Exported
from app.show.policy.export.kafka_configs import kafka_configs
from app.show.policy.export.pulsar_commands import pulsar_admin
from app.show.policy.policy_command import valid
from app.terminal.counts import counted
from app.terminal.outputs import require_folder, write_whole
from app.terminal.printable import printable, say

FORMATS: dict[str, Callable[[Sequence[Document]], Exported]] = {
    "kafka-configs": kafka_configs,
    "pulsar-admin": pulsar_admin,
}


def export(
    files: Sequence[Path], format_: str, out: Path | None = None, cluster: str | None = None
) -> int:
    """Print policies as commands, or write them to a file. Limits that the format
    cannot express are named on standard error; returns 1 if there are any, else 0.
    """
    if format_ not in FORMATS:
        raise UserError(f"--format {format_}: is unknown\nallowed: {', '.join(FORMATS)}")
    require_folder(out, "--out")
    documents = compiled([one.document for one in valid(*files, cluster=cluster)])
    found = FORMATS[format_](documents)
    for one in found.left_out:
        say(printable(str(one)), file=sys.stderr)
    if out is None:
        say(found.text, end="")
    elif found.text:
        write_whole(out, found.text, "--out")
        say(f"The limits are in {out}.")
    if not found.text:
        say(f"no limit can be written as {format_}", file=sys.stderr)
    elif found.left_out:
        say(f"{counted(len(found.left_out), 'limit')} not exported", file=sys.stderr)
    return 1 if found.left_out else 0
