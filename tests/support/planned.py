"""Traces of scenarios, each made once."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from app.demo.generator.scenario import SHIPPED, Scenario, load_scenario
from app.demo.generator.trace import ArrivalSlice, Trace, plan_trace
from tests.unit.demo.generator.model import parsed_lines

Record = dict[str, Any]
OWN = Path(__file__).parents[1] / "data" / "scenarios"


def scenario_of(name: str) -> Scenario:
    """A scenario of the tests, or a shipped one."""
    own = OWN / f"{name}.yaml"
    if own.is_file():
        return Scenario.model_validate(yaml.safe_load(own.read_text()))
    return load_scenario(name)


@cache
def planned(scenario: str, seed: int, events: int) -> Trace:
    """A trace of some events."""
    return plan_trace(scenario_of(scenario), events, seed)


@cache
def slices(scenario: str, seed: int, events: int) -> tuple[ArrivalSlice, ...]:
    """Its slices."""
    return tuple(planned(scenario, seed, events).slices())


@cache
def arrived(scenario: str, seed: int, events: int) -> list[Record]:
    """Its well-formed records as they arrive, payloads as bytes."""
    return [decoded(r) for r in parsed_lines(slices(scenario, seed, events))]


def decoded(record: Record) -> Record:
    """A record with its payload as bytes."""
    if "payload" in record:
        record["payload"] = base64.b64decode(record["payload"], validate=True)
    return record


def changed(scenario: str, part: str, **keys: Any) -> Scenario:
    """A shipped scenario with other keys in one of its parts."""
    document = yaml.safe_load((SHIPPED / f"{scenario}.yaml").read_text())
    document[part] |= keys
    return Scenario.model_validate(document)
