"""`completion`: bash completes commands, options, questions, jobs and tables, as a person types them."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from functools import partial
from pathlib import Path
from select import select

import pytest
import typer

from app.cli import app, main
from app.read.questions import QUESTIONS
from app.setup.launch.line import COMMANDS
from app.tables.definitions import TABLES
from state.jobs import JOBS
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script as the command prints it."""
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()) as out:
        assert main(["completion"]) == 0
    file = tmp_path_factory.mktemp("completion") / "weir.bash"
    file.write_text(out.getvalue(), "utf-8")
    return file


def completed(script: Path, *words: str) -> list[str]:
    """What the last word may become, as bash asks for it."""
    asked = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weir; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-u", "-c", asked, str(script), "./spark-submit.sh", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return [line for line in done.stdout.split("\n") if line]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("re", ["repair", "report", "reconcile", "replay"]),
        ("run --av", ["--available-now"]),
        ("--master local[2] run --dr", ["--drain"]),
        ("policy di", ["diff"]),
        ("policy diff a.yaml b.yaml --ke", ["--keep"]),
        ("policy suggest pro", ["producer-ids"]),
        ("policy suggest producer-ids --he", ["--headroom"]),
        ("query group-lo", ["group-losses"]),
        ("replay --jobs back", ["backlog"]),
        ("quality --table cache_s", [t for t in TABLES if t.startswith("cache_s")]),
        ("nothing --x", []),
    ],
)
def test_a_word_is_completed_where_it_stands(script: Path, words: str, expected: list[str]) -> None:
    assert completed(script, *words.split(" ")) == expected


def test_a_table_is_completed_in_a_statement(script: Path) -> None:
    for quote in ("'", '"'):
        found = completed(script, "query", f"{quote}SELECT * FROM lost_m")
        assert found == ["SELECT * FROM lost_messages"]


def test_all_there_is_is_completed(script: Path) -> None:
    command = typer.main.get_command(app)
    commands = getattr(command, "commands", {})
    shown = {name for name, each in commands.items() if not each.hidden}
    found = completed(script, "")
    assert (
        {word for word in found if not word.startswith("-")} == shown == {*COMMANDS, "completion"}
    )
    assert {*QUESTIONS} <= {*completed(script, "query", "")}
    assert completed(script, "run", "--jobs", "") == [*JOBS]
    options = {o for each in commands["replay"].params for o in each.opts if o.startswith("--")}
    assert {*completed(script, "replay", "--")} == options


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_tab_completes_on_a_terminal(script: Path, tmp_path: Path, shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is missing (Debian has it under this name)")
    program, given = tmp_path / "weir", tmp_path / "given"
    program.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {given}; mv {given} {given}-all\n')
    program.chmod(0o755)
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name != "BASH_ENV"}
    variables = {"PATH": f"{tmp_path}:{kept['PATH']}", "TERM": "dumb", "HOME": str(tmp_path)}
    process = subprocess.Popen(
        [found, "--norc" if shell == "bash" else "-f", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        env={**kept, **variables},
        start_new_session=True,
    )
    os.close(theirs)
    seen = bytearray()

    def shown(text: bytes) -> bool:
        if select([ours], [], [], 0)[0]:
            seen.extend(os.read(ours, 65_536))
        return text in seen

    try:
        for line, text in (
            (f"source {script} && echo sour''ced\n", b"sourced"),
            ('weir query "SELECT * FROM lost_m\t', b"lost_messages"),
            ("--wi\t", b"--wide"),
            ("\n", b"\n"),
        ):
            os.write(ours, line.encode())
            wait_for(partial(shown, text))
        wait_for(Path(f"{given}-all").exists)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert Path(f"{given}-all").read_text() == "query|SELECT * FROM lost_messages|--wide|"
