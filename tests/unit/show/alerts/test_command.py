"""The command line of `alerts check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import main
from app.command_line import moment
from app.errors import UserError


def test_moments_on_the_command_line() -> None:
    assert moment("1767621600000") == 1_767_621_600_000
    assert moment("2026-01-05T14:00:00Z") == 1_767_621_600_000
    assert moment("2026-01-05T14:00:00") == 1_767_621_600_000
    assert moment("2026-01-05T15:00:00.250+01:00") == 1_767_621_600_250
    with pytest.raises(UserError):
        moment("yesterday")


def test_a_moment_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = main(["alerts", "check", "--warehouse", str(tmp_path / "w"), "--at", "yesterday"])
    assert done == 2
    assert capsys.readouterr().err.splitlines()[0] == "weir: --at yesterday: is not a time"
