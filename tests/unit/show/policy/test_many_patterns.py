"""`policy check` of thousands of patterns: in bounded time, with every mistake that it has."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.cli import main
from app.config.policy_files import WrittenDocument, checked
from app.show.policy.overridden import overridden
from state.engine.globs import expression
from tests.support.effort import drawn

MANY, CPU_S = 5_000, 20
SHAPES: dict[str, Callable[[int], str]] = {
    "a begin of their own": "acme/ns{}/a*".format,
    "an end of their own": "acme/*/t{:05}".format,
    "a middle of their own": "acme/*/t{:05}*".format,
    "any namespace": "**/x{:05}".format,
    "exact": "acme/ns/t{}".format,
    "no slash": "t-{:05}-*".format,
}


def document(scope: str, name: str, **limits: int) -> dict[str, Any]:
    return {"scope": scope, "name": name, "limits": limits or {"publishRateInMsgs": 5}}


def written(*documents: dict[str, Any]) -> list[WrittenDocument]:
    return [WrittenDocument("p.yaml", f"[{i}]", each) for i, each in enumerate(documents)]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_many_patterns_are_compared(shape: Callable[[int], str]) -> None:
    began = time.process_time()
    topics = [document("topic", shape(i), publishRateInMsgs=i + 1) for i in range(MANY)]
    twins = [document("topic", f"twin/{sign}/x", publishRateInMsgs=2) for sign in ("*", "?")]
    twins[1]["limits"]["publishRateInMsgs"] = 3
    spaces = [document("namespace", f"acme/ns{i}*") for i in range(MANY)]
    weak = document("tenant", "weak")
    found = checked(written(*topics, *twins, *spaces, weak, document("namespace", "weak/*")))
    assert [(m.one.document["name"], m.key) for m in found.mistakes] == [("twin/?/x", "name")]
    overruled = list(overridden(found.in_force))
    assert [(one.document, key) for one, key, _ in overruled] == [
        (weak, "limits.publishRateInMsgs")
    ]
    assert time.process_time() - began < CPU_S


def test_patterns_that_all_match_a_common_name_are_too_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.process_time()
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump([document("tenant", f"*{i}*") for i in range(2_000)]))
    assert main(["policy", "check", str(file)]) == 2
    assert "too many patterns are as specific as '*100*' to compare" in capsys.readouterr().err
    assert time.process_time() - began < CPU_S


def test_what_is_not_compared_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.process_time()
    file = tmp_path / "p.yaml"
    spaces = [document("namespace", f"tenant-{i}/name-of-space*") for i in range(1_000)]
    topics = [document("topic", f"**{'x' * i}**") for i in range(1, 60)]
    file.write_text(yaml.safe_dump([*spaces, *topics]))
    assert main(["policy", "check", str(file)]) == 1
    more, last = capsys.readouterr().out.splitlines()
    assert "too many patterns match names in common to compare them" in more
    assert last == ("1,059 documents, 0 mistakes, 1 finding")
    assert time.process_time() - began < 2 * CPU_S


NAMES = st.lists(st.sampled_from(("a", "b", "/", "*", "**", "?")), min_size=1, max_size=3).map(
    "".join
)


@drawn(200)
@given(st.lists(NAMES, min_size=2, max_size=6, unique=True))
def test_conflicts_are_those_of_all_pairs(names: list[str]) -> None:
    """Against all pairs, tried on all short names; names of users are matched as they are."""
    texts = ["".join(signs) for n in range(6) for signs in product("ab/", repeat=n)]
    matched = [{t for t in texts if expression(name).fullmatch(t)} for name in names]
    found = checked(
        written(*(document("user", n, producer_ids_rate=i + 1) for i, n in enumerate(names)))
    )
    ranks = [sum(sign not in "*?" for sign in name) for name in names]
    wild = ["*" in name or "?" in name for name in names]
    expected = {
        (names[b], names[a])
        for a, b in combinations(range(len(names)), 2)
        if ranks[a] == ranks[b] and wild[a] and wild[b] and matched[a] & matched[b]
    }
    assert {
        (m.one.document["name"], m.text.split(" and ")[1].split(" (")[0].strip("'"))
        for m in found.mistakes
    } == expected
