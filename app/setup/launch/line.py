"""The words of a command line: options of spark-submit, then a command with its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.errors import UserError

ON_SPARK = ("demo", "run", "doctor")
REPLAYING = (["replay"], ["policy", "diff"])
"""Commands that run on Spark where the line has a --master, by the words that they begin with."""
COMMANDS = (
    *ON_SPARK,
    *("validate", "tables", "query", "explain", "policy", "report", "quality", "alerts"),
    *("metrics", "maintain", "repair", "forget", "reconcile", "forecast", "replay", "bakeoff"),
    *("serve", "size", "completion"),
)
HELP = ("--help", "-h")
OF_PROGRAM = (*HELP, "--version", "--debug")
"""Options before the command that are no options of spark-submit."""
LISTS = ("--jars", "--py-files", "--archives", "--files", "--packages")
"""Options of spark-submit whose values are joined with Weir's."""
HELD = ("--master", "--deploy-mode", *LISTS)
"""Options that are not passed as they are: the line that is built has them."""
READ = ("--conf", "--properties-file", "--repositories", *HELD)
"""Options of spark-submit on which the line that is built depends."""
ALONE = ("--kill", "--status")
"""Options with which spark-submit runs no application."""


@dataclass
class Line:
    """A command line of Weir."""

    command: str
    words: list[str]
    """The command with its own options."""
    given: dict[str, list[str]] = field(default_factory=dict)
    """The values of options of READ."""
    passed: list[str] = field(default_factory=list)
    """Options of spark-submit that are passed as they are, with their values."""
    dry_run: bool = False
    prepare: bool = False

    @property
    def alone(self) -> bool:
        """Whether the line asks spark-submit for something else than an application."""
        return any(word.partition("=")[0] in ALONE for word in self.passed)

    @property
    def help(self) -> bool:
        """Whether it asks for a help, as a line without a command does."""
        asked = any(option in self.words for option in HELP)
        return asked or not (self.words or self.prepare or self.alone)

    @property
    def needs_spark(self) -> bool:
        """Whether spark-submit runs it."""
        works = not self.help and "--dry-run" not in self.words
        replays = any(self.words[: len(words)] == words for words in REPLAYING)
        there = self.command in ON_SPARK or (replays and "--master" in self.given)
        return self.alone or (there and works)

    @property
    def confs(self) -> dict[str, str]:
        """The confs of the line."""
        pairs = (conf.partition("=") for conf in self.given.get("--conf", []))
        return {key: value for key, _, value in pairs}

    def last(self, option: str) -> str | None:
        """The value of an option of READ that is given last."""
        return self.given.get(option, [None])[-1]

    def option(self, name: str) -> str | None:
        """The value of an option of the command, as `--name value` or `--name=value`."""
        for word, following in zip(self.words, [*self.words, ""][1:], strict=True):
            if word == name:
                return following
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
        return None


def read(arguments: Sequence[str]) -> Line:
    """The line is cut at the first word that is a command.

    Raises UserError for an option of READ without its value or behind the command, and for a line
    without a command.
    """
    start = next((i for i, word in enumerate(arguments) if word in COMMANDS), len(arguments))
    line = Line("".join(arguments[start : start + 1]), list(arguments[start:]))
    if line.command in ON_SPARK:
        for word in line.words:
            if word.partition("=")[0] in READ:
                raise UserError(f"{word}: options of spark-submit go before {line.command}")
    ahead = iter(arguments[:start])
    for word in ahead:
        option, given, value = word.partition("=")
        option = "--conf" if option == "-c" else option
        if option == "--remote":
            raise UserError("--remote: Weir needs a classic Spark session; give --master")
        if word == "--dry-run":
            line.dry_run = True
        elif word == "--prepare":
            line.prepare = True
        elif word in OF_PROGRAM:
            line.words.insert(0, word)
        elif option in READ:
            value = value if given else next(ahead, "")
            if not value:
                raise UserError(f"{option} needs a value")
            line.given.setdefault(option, []).append(value)
            if option not in HELD:
                line.passed += [option, value]
        else:
            line.passed.append(word)
    if line.passed and not (line.command or line.alone or line.prepare):
        first = line.passed[0]
        missing = (
            f"{first}: no command follows" if first[:1] == "-" else f"No such command '{first}'"
        )
        raise UserError(f"{missing}\n--help lists the commands")
    return line
