"""The program: loads the commands of all rooms, runs one, and says how it ended."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer import Option

from app import __version__
from app.command_line import app
from app.errors import CheckFound, UserError, not_installed, reason, refusal
from app.jobs import rooms_with
from app.run.jvm_watch import ending_with_jvm
from app.tables.object_store import of_store
from app.terminal import log
from app.terminal.interrupt import Terminated, stoppable
from app.terminal.printable import say
from app.terminal.program import PROGRAM
from app.terminal.secrets import without_secrets

for _room in ("demo", "run", "setup", "read", "show", "whatif"):
    import_module(f"app.{_room}.{_room}_commands")
for _job in rooms_with("commands"):
    import_module(f"{_job}.commands")


def _answers(arguments: list[str]) -> bool:
    """Whether a command line answers and ends, so that Ctrl-C ends it immediately; a service ends
    what it has begun."""
    words = [word for word in arguments if not word.startswith("-")][:2]
    command = words[0] if words else "run"
    return not (
        command == "run"
        or words == ["alerts", "watch"]
        or (command == "metrics" and "--once" not in arguments)
        or (command == "reconcile" and "--watch" in arguments)
    )


def _version(wanted: bool) -> None:
    if wanted:
        print(f"weir {__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    debug: Annotated[bool, Option("--debug", help="Show stack traces.")] = False,
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""


@cache
def _command() -> Any:
    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; exit code 0 done, 1 findings, 2 user error, 3 internal error, 75 something does
    not answer, 130 Ctrl-C, 143 SIGTERM."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    # The switch works anywhere on the line, also after the command.
    arguments = [a for a in arguments if a != "--debug"]
    log.end()
    try:
        with (
            ending_with_jvm(),
            stoppable() if _answers(arguments) else nullcontext(),
            # Not by the command's own `main`: that takes the end of a damaged file for a Ctrl-C.
            _command().make_context(PROGRAM, list(arguments)) as context,
        ):
            code = int(_command().invoke(context) or 0)
        sys.stdout.flush()  # what cannot be written is an error of the command
        return code
    except typer.Exit as stop:
        return stop.exit_code
    except CheckFound as found:
        return _say(str(found), 1, debug)
    except UserError as error:
        return _say(f"weir: {error}", error.exit_code, debug)
    except ModuleNotFoundError as error:
        return _say(f"weir: {not_installed(str(error.name))}", 2, debug)
    except BrokenPipeError:
        # The reader (`| head`) has closed the pipe; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _say("weir: interrupted", 130, debug)
    except Terminated:
        return _say("weir: terminated", 143, debug)
    except Exception as error:  # noqa: BLE001 - the outermost frame: reported, exit code 3
        return _unexpected(error, debug)


def _unexpected(error: Exception, debug: bool) -> int:
    usage: Callable[[], str] | None = getattr(error, "format_message", None)
    if usage is not None:
        # A mistake on the command line, as click reports it.
        return _say(f"weir: {usage()} (--help lists the options)", 2, debug)
    if (told := of_store(error)) is not None:
        return _say(f"weir: {told}", told.exit_code, debug)
    if refusal(error):
        return _say(f"weir: {_refusing(error)}", 2, debug)
    return _say(
        f"weir: {type(error).__name__}: {reason(error)}\n"
        "This is an internal error; --debug shows the stack trace.",
        3,
        debug,
    )


def _refusing(error: Exception) -> str:
    """Which file the system has refused, and why. Without a name (`folders.put` has one) it is the
    standard output, to which nothing more is written, nor at exit."""
    if not isinstance(error, OSError) or error.strerror != refusal(error):
        return reason(error)  # as a library has it
    if error.filename is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"{error.filename or 'standard output'}: {error.strerror}"


def _say(text: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    with suppress(OSError):  # the exit code has to say it
        if not log.error(text.removeprefix("weir: ")):
            say(without_secrets(text), file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
