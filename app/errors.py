"""The errors that end a command with an exit code of their own."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from difflib import get_close_matches


class UserError(Exception):
    """Something the user can fix: exit code 2, one or two lines, no stack trace.

    `problems` lists every mistake where there can be several; the message shows the first.
    """

    exit_code = 2

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[str, ...] = tuple(problems) or (message,)

    @classmethod
    def of_many(cls, problems: Sequence[str], hint: str) -> UserError:
        """One error for all `problems`; the second line reports the number of the others."""
        rest = len(problems) - 1
        more = f"\n{rest} more mistake{'s' if rest > 1 else ''}: {hint}" if rest else ""
        return cls(problems[0] + more, problems)


class NotNow(UserError):
    """What may pass without a hand, as a server that does not answer: exit code 75, EX_TEMPFAIL of the
    system, after which a service is started again."""

    exit_code = 75


class LastingError(UserError):
    """A problem of a source that does not pass by waiting."""


class CheckFound(Exception):
    """A check found what it looks for (an alert fires, an audit failed): exit code 1."""


def not_installed(package: str) -> str:
    """What a user is told of a package that this installation lacks, as an image for polls lacks some:
    the second line installs all of them."""
    from importlib import metadata

    wanted = [each for weir in metadata.distributions(name="weir") for each in weir.requires or ()]
    names = {each: re.split(r"[^\w.-]", each)[0] for each in wanted}
    lacking = [each for each in wanted if not any(metadata.distributions(name=names[each]))]
    return (
        f"{package} is not installed\n"
        f"{sys.executable} -m pip install {shlex.join(lacking or [package])}"
    )


MOST_OF_REASON = 300
"""Characters of an error that are told in a line."""
CAUSE = "\u21b3"
"""What delta-rs begins each cause of an error with."""


_REFUSAL = re.compile(
    "No space left on device|Disk quota exceeded|Read-only file system|Permission denied"
    "|Operation not permitted"
)


def refusal(error: object) -> str | None:
    """What the system has refused about a file, for the user to fix; libraries have it somewhere in
    their message."""
    found = _REFUSAL.search(str(error))
    return found and found[0]


def reason(error: object) -> str:
    """The first line of an error's message on one printable line, cut, and the last of its causes where
    delta-rs lists them below; its kind where it has none. The system's own words where it has refused
    something about a file, in another line.
    """
    first, *causes = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().split("\n")
    caused = [line.partition(CAUSE)[2].strip() for line in causes if CAUSE in line]
    text = ": ".join([first, *caused[-1:]])[:MOST_OF_REASON] or type(error).__name__
    text = text if refusal(text) else refusal(error) or text
    return "".join(c if c.isprintable() else " " for c in text)


def did_you_mean(name: str, allowed: Sequence[str]) -> str:
    """The end of a message about an unknown name: the nearest allowed one, else all of them."""
    near = get_close_matches(name[:100], allowed, n=1, cutoff=0.75)
    return f"did you mean {near[0]}?" if near else "allowed: " + ", ".join(allowed)
