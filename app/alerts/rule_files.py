"""Alert rules as YAML files describe them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from app.errors import UserError
from app.query import write_json, write_table

Text = Annotated[str, Field(min_length=1)]


class Rule(BaseModel):
    """One rule: when it holds (SQL over the tables), for how long, and what to say then."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Text
    sql: Text
    """Gives start_ms, end_ms, value and labels."""
    now: Text
    """Gives the time that the tables have reached (ms since the epoch); null while empty."""
    for_ms: Annotated[int, Field(ge=0)]
    severity: Text
    summary: Text
    """Braces name labels, `since`, `until`, `seconds` and `value`."""
    runbook: str = ""


RULES = TypeAdapter(list[Rule])


def load_rules(folder: Path) -> list[Rule]:
    """Every rule of the folder's YAML files, in order; UserError names file and key."""
    files = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    if not files:
        raise UserError(f"{folder}: no alert rules (*.yaml) there")
    rules: dict[str, Rule] = {}
    for file in files:
        try:
            found = RULES.validate_python(yaml.safe_load(file.read_text("utf-8")))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            text = " ".join(str(error).split())[:200]
            raise UserError(f"{file}: is not YAML: {text}") from error
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or "the file"
            allowed = ", ".join(Rule.model_fields)
            raise UserError(
                f"{file}: {key}: {first['msg']}\na file is a list of rules; keys: {allowed}"
            ) from error
        for rule in found:
            if rule.name in rules:
                raise UserError(f"{file}: name: {rule.name} stands in more than one place")
            rules[rule.name] = rule
    return list(rules.values())


def rules_command(folder: Path, as_json: bool) -> int:
    """Print the rules; 0."""
    names = ["name", "severity", "for_ms", "summary", "runbook"]
    rows = [[getattr(rule, name) for name in names] for rule in load_rules(folder)]
    (write_json if as_json else write_table)(names, rows, sys.stdout)
    return 0
