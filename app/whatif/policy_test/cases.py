"""The command `policy test`: cases in a file, each with traffic and what is expected of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.config.reading import read_yaml
from app.config.settings import settings_of_document
from app.errors import UserError
from app.tables.client_entity import client_entity
from app.terminal.counts import counted
from app.terminal.printable import say

if TYPE_CHECKING:
    from app.whatif.policy_test.play import PlayedTables, Row

NAMES = {
    "culprits": "SELECT DISTINCT topic AS name FROM topic_pauses WHERE is_culprit",
    "victims": "SELECT DISTINCT topic AS name FROM topic_pauses WHERE is_victim",
    "over_bound": "SELECT DISTINCT d.user AS name FROM producer_id_decisions AS d"
    " WHERE verdict <> 'counted'",
    "throttled": f"SELECT DISTINCT {client_entity('d')} AS name FROM client_quota_decisions AS d",
}
"""Lists of names that may be expected: topics that exceeded their own limit, topics that were paused
for others, users above their bound, entities above a client quota."""
KEYS = ("name", "events", "expect")


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    name: str
    ok: bool
    differences: tuple[str, ...]


def test_policies(files: Sequence[Path], as_json: bool) -> int:
    """Run the cases of files; 1 if one fails, else 0."""
    outcomes = [(file, outcome) for file in files for outcome in _outcomes(file)]
    failed = sum(not outcome.ok for _, outcome in outcomes)
    if as_json:
        print(
            json.dumps([{"file": str(file), **asdict(each)} for file, each in outcomes], indent=2)
        )
        return 1 if failed else 0
    for file, outcome in outcomes:
        say(f"{'ok  ' if outcome.ok else 'FAIL'} {file}: {outcome.name}")
        for text in outcome.differences:
            say(f"       {text}")
    say(f"{counted(len(outcomes), 'case')}, {failed} failed")
    return 1 if failed else 0


def _outcomes(file: Path) -> list[Outcome]:
    from app.whatif.policy_test.event_lines import events_of
    from app.whatif.policy_test.play import play

    document = read_yaml(file, dict)
    cases = document.pop("cases", None)
    if not isinstance(cases, list) or not cases:
        raise UserError(
            f"{file}: cases: is not a list of cases (allowed: {', '.join(KEYS)} each)\n"
            "the other keys of the file are those of a configuration"
        )
    settings = settings_of_document(document, file)
    outcomes = []
    for number, case in enumerate(cases):
        where = f"{file}: cases[{number}]"
        _known(case, KEYS, where)
        if not isinstance(case.get("name"), str):
            raise UserError(f"{where}.name: is missing (a text)")
        expected = case.get("expect")
        _known(expected, (*NAMES, "queries"), f"{where}.expect")
        played = play(events_of(case.get("events"), f"{where}.events"), settings, where)
        found = tuple(_differences(expected, played, f"{where}.expect"))
        outcomes.append(Outcome(case["name"], not found, found))
    return outcomes


def _known(section: Any, keys: Sequence[str], where: str) -> None:
    if not isinstance(section, Mapping) or not section:
        raise UserError(f"{where}: is not a mapping (allowed: {', '.join(keys)})")
    for key in section:
        if key not in keys:
            raise UserError(f"{where}.{key}: unknown key (allowed: {', '.join(keys)})")


def _differences(expected: Mapping[str, Any], played: PlayedTables, where: str) -> list[str]:
    found = []
    for key, names in expected.items():
        if key == "queries":
            continue
        if not isinstance(names, list):
            raise UserError(f"{where}.{key}: is not a list of names")
        there = sorted(
            str(row["name"]).removeprefix("persistent://") for row in played.query(NAMES[key])
        )
        wanted = sorted(str(name).removeprefix("persistent://") for name in names)
        if there != wanted:
            found.append(f"{key}: expected {_listed(wanted)}, got {_listed(there)}")
    for number, query in enumerate(expected.get("queries", ())):
        place = f"{where}.queries[{number}]"
        _known(query, ("query", "params", "rows"), place)
        params = {name: str(value) for name, value in (query.get("params") or {}).items()}
        rows = played.query(str(query.get("query")), **params)
        found += _unlike(query.get("rows"), rows, f"queries[{number}]", place)
    return found


def _unlike(expected: Any, rows: Sequence[Row], name: str, where: str) -> list[str]:
    """Rows are compared in the columns that are expected of them."""
    if not isinstance(expected, list):
        raise UserError(f"{where}.rows: is not a list of rows")
    if len(expected) != len(rows):
        return [f"{name}: expected {counted(len(expected), 'row')}, got {len(rows)}: {rows[:3]}"]
    return [
        f"{name}, row {number}: {column}: expected {value!r}, got {row.get(column)!r}"
        for number, (wanted, row) in enumerate(zip(expected, rows, strict=True))
        for column, value in wanted.items()
        if row.get(column) != value
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
