"""One warehouse of what the cores decide, and everything that is explained of it."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from tests.unit.show.explain.asking import ALL
from tests.unit.show.explain.rows import TRACES, fill

QUESTIONS = [
    *(("topic", "t/ns/orders", "--cluster", cluster) for cluster in TRACES),
    *(("topic", "t/ns/mail", "--cluster", cluster) for cluster in ("worked", "group", "buffer")),
    *(("connection", "c1", "--cluster", cluster) for cluster in TRACES),
    ("connection", "c2", "--cluster", "seen"),
    ("topic", "t/a/x"),
    ("topic", "t/a/x", "--cluster", "east", "--at", "2026-01-05T14:01:05Z"),
    ("topic", "persistent://k/g/payments"),
    ("group", "billing"),
    ("group", "archive"),
    ("topic", "t/ns/scans"),
    ("topic", "t/ns/a", "--cluster", "cached"),
    ("topic", "t/ns/large", "--cluster", "chunks"),
    ("topic", "t/ns/large", "--cluster", "defects"),
    ("subscription", "t/a/x", "billing"),
    ("subscription", "t/a/x", "billing", "--cluster", "east", "--at", "2026-01-05T14:02:30Z"),
    ("subscription", "t/a/x", "billing", "--cluster", "east", "--at", "2026-01-05T14:04:00Z"),
    ("subscription", "t/a/x", "audit"),
    ("subscription", "t/a/x", "tail"),
    ("subscription", "t/ns/scans", "s"),
    ("subscription", "t/ns/a", "s"),
    ("principal", "User:alice"),
    ("principal", "User:alice", "--cluster", "east", "--window", "1s"),
    ("client", "ann"),
    ("client", "User:ann", "live"),
    ("client", "bob"),
    ("client", "bob", "cli"),
    ("client", "cid", "web"),
    ("client", "fay"),
    *(("message", uuid) for uuid in ("a-1", "b-1", "b-2", "c-1", "d-1", "x-1")),
]


@pytest.fixture(scope="session")
def decided(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The warehouse; nobody writes to it."""
    folder = Path(tmp_path_factory.mktemp("explain")) / "warehouse"
    fill(str(folder))
    return str(folder)


@pytest.fixture(scope="session")
def answers(decided: str) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """The sentences that answer each question."""
    found = {}
    for question in QUESTIONS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            words = [
                question[0],
                *ALL,
                *question[1:],
                "--limit",
                "1000",
                "--json",
                "--warehouse",
                decided,
            ]
            assert main(["explain", *words]) == 0
        found[question] = json.loads(out.getvalue())["sentences"]
    return found
