"""Options that mean the same in every command."""

from __future__ import annotations

import errno
import os
import tomllib
from pathlib import Path

import pytest
import typer

from app import __version__
from app.cli import app, main
from app.errors import UserError
from app.terminal.interrupt import Terminated

ROOT = Path(__file__).resolve().parents[2]


def commands(group=None, place=()):
    """Every command with its options: name -> the words of each option."""
    group = typer.main.get_command(app) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*place, name))
        else:
            yield " ".join((*place, name)), {word for p in command.params for word in p.opts}


def test_the_version_is_that_of_the_project(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"weir {__version__}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["version"]["path"] == "app/__init__.py"


@pytest.mark.parametrize(
    ("name", "options"), [pytest.param(*each, id=each[0]) for each in commands()]
)
def test_a_configuration_and_a_warehouse_are_taken_together(name, options):
    assert ("--config" in options) == ("--warehouse" in options), name


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["alerts"],
        ["policy"],
        ["policy", "suggest"],
        *(name.split() for name, _ in commands()),
    ],
    ids=" ".join,
)
def test_help_fits_a_terminal_without_trailing_blanks_and_cuts_nothing_off(words, capsys):
    assert main([*words, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Usage: ./spark-submit.sh")
    assert [line for line in lines if line != line.rstrip() or len(line) > 80] == []
    assert not [line for line in lines[1:] if line.endswith("...")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["metrics", "--refresh", "soon"], "--refresh soon: 'soon' is not a duration"),
        (
            ["metrics", "--refresh", "15"],
            "--refresh 15: '15' has no unit (allowed: such as 90s, 5m,",
        ),
        (["metrics", "--idle", "3600"], "--idle 3600: '3600' has no unit"),
        (
            ["metrics", "--idle", "1500ms"],
            "metrics.idle_s: '1500ms' is not a whole number of seconds",
        ),
        (["metrics", "--refresh", "0s"], "--refresh 0s: allowed: more than 0"),
        (["alerts", "watch", "--interval", "5"], "--interval 5: '5' has no unit"),
        (["explain", "topic", "t", "--window", "5y"], "--window 5y: '5y' is not a duration"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_duration_reads_the_same_everywhere(words, said, tmp_path, capsys):
    (tmp_path / "_weir").mkdir()
    assert main([*words, "--warehouse", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (EOFError("the file ends"), 3, "weir: EOFError: the file ends\n"),
        (KeyError("x"), 3, "weir: KeyError: 'x'\n"),
        (typer.Abort(), 3, "weir: Abort: Abort\n"),
        (UserError("no"), 2, "weir: no\n"),
        (
            OSError(errno.EACCES, os.strerror(errno.EACCES), "f"),
            2,
            "weir: f: Permission denied\n",
        ),
        (KeyboardInterrupt(), 130, "weir: interrupted\n"),
        (Terminated(), 143, "weir: terminated\n"),
    ],
)
def test_only_a_signal_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    def rules(*_: object) -> int:
        raise error

    monkeypatch.setattr("app.show.alerts.rules", rules)
    assert main(["alerts", "rules", "--warehouse", str(tmp_path)]) == code
    assert capsys.readouterr().err.startswith(said)
