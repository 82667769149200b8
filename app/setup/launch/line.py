"""The words of a command line: the command's own, and those that go to spark-submit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from app.errors import UserError

WITH_SPARK = ("demo", "run", "reshard", "doctor")
WITHOUT_SPARK = (
    "generate",
    "validate",
    "tables",
    "query",
    "explain",
    "policy",
    "report",
    "quality",
    "alerts",
    "metrics",
    "maintain",
    "forget",
    "reconcile",
    "forecast",
    "replay",
    "bakeoff",
    "size",
)
OWN_DRY_RUN = ("maintain", "forget", "reshard")
"""Commands that have a --dry-run of their own, for which no Spark is needed."""

DRY_RUN = "--dry-run"
LISTS = ("--jars", "--py-files", "--archives", "--files", "--packages")
"""Options whose values are joined with Weir's."""
HELD = ("--master", "--deploy-mode", *LISTS)
"""Options that are not passed as they are: the line that is built has them."""
PASSED = (
    "--class",
    "--name",
    "--exclude-packages",
    "--repositories",
    "--conf",
    "-c",
    "--properties-file",
    "--driver-memory",
    "--driver-java-options",
    "--driver-library-path",
    "--driver-class-path",
    "--driver-default-class-path",
    "--executor-memory",
    "--proxy-user",
    "--driver-cores",
    "--total-executor-cores",
    "--executor-cores",
    "--num-executors",
    "--principal",
    "--keytab",
    "--queue",
    "--remote",
    "--kill",
    "--status",
)
SWITCHES = ("--supervise", "--verbose", "-v", "--load-spark-defaults")
ALONE = ("--kill", "--status")
"""Options with which spark-submit runs no application."""


@dataclass
class Line:
    """A command line of Weir."""

    command: str = ""
    words: list[str] = field(default_factory=list)
    """The command with its own options."""
    options: list[tuple[str, ...]] = field(default_factory=list)
    """Options of spark-submit that are passed on, in their order."""
    held: dict[str, str] = field(default_factory=dict)
    """Values of the options of HELD; those of LISTS are joined by commas."""
    dry_run: bool = False
    prepare: bool = False
    help: bool = False

    @property
    def alone(self) -> bool:
        """Whether the line asks spark-submit for something else than an application."""
        return any(option[0] in ALONE for option in self.options)

    @property
    def asks(self) -> bool:
        """Whether it is a question about the program: a help, or no command."""
        return self.help or not (self.command or self.prepare or self.alone)

    @property
    def needs_spark(self) -> bool:
        """Whether spark-submit runs it."""
        works = not self.help and DRY_RUN not in self.words
        return self.alone or (self.command in WITH_SPARK and works)

    @property
    def confs(self) -> dict[str, str]:
        """The confs of the line."""
        pairs = (value for name, *rest in self.options if name == "--conf" for value in rest)
        return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}

    def values(self, option: str) -> list[str]:
        """What the line gives an option of spark-submit that is passed on."""
        return [words[1] for words in self.options if words[0] == option]

    def option(self, name: str) -> str | None:
        """The value of an option of the command, as `--name value` or `--name=value`."""
        for word, following in zip(self.words, [*self.words, ""][1:], strict=True):
            if word == name:
                return following
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
        return None

    def replace_option(self, name: str, value: str) -> list[str]:
        """The words of the command with another value for an option."""
        made: list[str] = []
        for word in self.words:
            if made and made[-1] == name:
                word = value
            elif word.startswith(f"{name}="):
                word = f"{name}={value}"
            made.append(word)
        return made


def read(arguments: Sequence[str]) -> Line:
    """Options of the command and of spark-submit may be in any order, unless the command runs
    without Spark: then every option after it is its own.

    Raises UserError for an option without its value and for a command that does not exist.
    """
    line = Line()
    ahead = iter(arguments)
    for word in ahead:
        name, given, value = word.partition("=")
        if word == DRY_RUN and line.command not in OWN_DRY_RUN:
            line.dry_run = True
        elif word == "--prepare":
            line.prepare = True
        elif word in ("--help", "-h"):
            line.help = True
            line.words.append(word)
        elif word in SWITCHES:
            line.options.append((word,))
        elif name in HELD or name in PASSED:
            _take(line, name, value if given else _next(name, ahead))
        elif word.startswith("-") or line.command:
            line.words.append(word)
        else:
            _begin(line, word, ahead)
    return line


def _next(option: str, ahead: Iterator[str]) -> str:
    value = next(ahead, None)
    if value is None:
        raise UserError(f"{option} needs a value")
    return value


def _take(line: Line, option: str, value: str) -> None:
    if option == "--remote":
        raise UserError("--remote: Weir needs a classic Spark session; give --master")
    if option in LISTS:
        value = joined(line.held.get(option), value)
    if option in HELD:
        line.held[option] = value
    else:
        line.options.append(("--conf" if option == "-c" else option, value))


def joined(*values: str | None) -> str:
    """Lists of spark-submit as one."""
    return ",".join(value for value in values if value)


def _begin(line: Line, command: str, ahead: Iterator[str]) -> None:
    if command not in WITH_SPARK + WITHOUT_SPARK:
        raise UserError(f"No such command '{command}'\n--help lists the commands")
    line.command = command
    line.words.append(command)
    if command in WITHOUT_SPARK:
        for word in ahead:
            if word == DRY_RUN and command not in OWN_DRY_RUN:
                line.dry_run = True
            else:
                line.words.append(word)
