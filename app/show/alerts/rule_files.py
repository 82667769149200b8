"""Alert rules from YAML files: reads, validates and lists them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from app.config.alert_rule import Rule
from app.config.alerts import AlertSettings
from app.config.documents import is_folder
from app.config.reading import describe, read_yaml
from app.config.shipped import Place, shipped, yaml_files
from app.errors import UserError, did_you_mean
from app.read.questions import QUESTIONS
from app.terminal.program import PROGRAM
from app.terminal.rows import write_json, write_table
from state.jobs import JOBS

KEYS = tuple(field.alias or name for name, field in Rule.model_fields.items())
_RULE = TypeAdapter(Rule)


def shipped_rules() -> list[Place]:
    """The files of the rules that are shipped, by name: those of the jobs, and those of none."""
    folders = [shipped("alerts"), *(shipped(f"{job}/alerts", "app/jobs") for job in JOBS)]
    return sorted(
        (file for folder in folders if folder.is_dir() for file in yaml_files(folder)),
        key=lambda file: file.name,
    )


def rules_of(settings: AlertSettings) -> list[Rule]:
    """The rules of a configuration, in order."""
    given = settings.rule_files
    found = of_release() if given is None else _of_files([Path(name) for name in given])
    return list(_joined([("alerts.rules", list(settings.rules)), *found]).values())


def told_of(settings: AlertSettings | None) -> dict[str, Rule]:
    """The rules by name whose facts a report tells: those that are shipped, whether they are evaluated
    or not, and those of a configuration, which need not repeat the finding of a shipped one."""
    rules = _joined(of_release())
    for rule in () if settings is None else rules_of(settings):
        known = rules.get(rule.name)
        kept = {"finding": known.finding} if known and rule.finding is None else {}
        rules[rule.name] = rule.model_copy(update=kept)
    return rules


def runbook_of(name: str) -> str:
    """The runbook of a shipped rule."""
    return told_of(None)[name].runbook


def chosen(rules: Sequence[Rule], names: Sequence[str]) -> list[Rule]:
    """The rules of these names; all if there are none."""
    known = [rule.name for rule in rules]
    for name in names:
        if name not in known:
            raise UserError(f"--rule {name}: no such rule\n{did_you_mean(name, known)}")
    return [rule for rule in rules if not names or rule.name in names]


def rules_command(rules: Sequence[Rule], as_json: bool) -> int:
    """Print the rules; 0."""
    names = ["name", "severity", "for_ms", "summary", "runbook"]
    rows = [[getattr(rule, name) for name in names] for rule in rules]
    if as_json:
        write_json(names, rows, sys.stdout)
    else:
        write_table(names, rows, sys.stdout, None)
    return 0


def _joined(found: Sequence[tuple[str, list[Rule]]]) -> dict[str, Rule]:
    """The rules of several files by name; names are unique."""
    places: dict[str, str] = {}
    rules: dict[str, Rule] = {}
    for place, several in found:
        for rule in several:
            if rule.name in rules:
                other = places[rule.name]
                where = "more than once" if other == place else f"in {other} as well"
                raise UserError(f"{place}: name: {rule.name} is used {where}; names are unique")
            asked = rule.finding.question if rule.finding else None
            if asked is not None and asked not in QUESTIONS:
                where = f"{place}: ({rule.name}) finding.question: {asked}"
                raise UserError(
                    f"{where} is no ready question\n{did_you_mean(asked, [*QUESTIONS])}"
                )
            places[rule.name], rules[rule.name] = place, rule
    return rules


def _of_files(files: Sequence[Place]) -> list[tuple[str, list[Rule]]]:
    return [found for place in files for found in _read(place)]


@cache
def of_release() -> list[tuple[str, list[Rule]]]:
    """The shipped rules: they stay the same as long as the process."""
    return _of_files(shipped_rules())


def _read(path: Place) -> list[tuple[str, list[Rule]]]:
    """Files and their rules: those of a folder, or of the one file."""
    files = [path]
    if is_folder(path):
        files = yaml_files(path)
        if not files:
            raise UserError(f"{path}: no alert rules (*.yaml) there")
    return [(str(file), _rules(file)) for file in files]


def _rules(file: Place) -> list[Rule]:
    rules: list[Rule] = []
    problems: list[str] = []
    for i, document in enumerate(read_yaml(file, list)):
        try:
            rules.append(_RULE.validate_python(document))
        except ValidationError as error:
            name = document.get("name") if isinstance(document, dict) else None
            which = f"[{i}]" + (f" ({name})" if isinstance(name, str) else "")
            problems += [
                f"{file}: {which}: {text.removeprefix(': ')}" for text in describe(error, Rule)
            ]
    if problems:
        raise UserError.of_many(
            [problems[0] + f"\nkeys of a rule: {', '.join(KEYS)}", *problems[1:]],
            f"{PROGRAM} alerts rules",
        )
    return rules
