"""Asks the command as a user does."""

from __future__ import annotations

import json
from typing import Any

from app.cli import main

BEGIN = "2026-01-05T14:00:00Z"
"""When the traces begin."""
ALL = ["--at", BEGIN, "--window", "1d"]


def explain(capsys: Any, warehouse: str, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["explain", *words, "--warehouse", warehouse])
    out, err = capsys.readouterr()
    return code, out, err


def answer(capsys: Any, warehouse: str, *words: str) -> dict[str, Any]:
    code, out, err = explain(capsys, warehouse, *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def texts(capsys: Any, warehouse: str, *words: str) -> list[tuple[str, str, str]]:
    """Time, rule and text of every sentence."""
    found = answer(capsys, warehouse, *words)["sentences"]
    return [(s["at"][11:-1], s["rule"], s["text"]) for s in found]
