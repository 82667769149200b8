"""Traces of scenarios, each made once."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

import yaml

from benchmarks.generator.scenario import FOLDER, Scenario, load_scenario
from benchmarks.generator.trace import ArrivalSlice, Trace, plan_trace
from tests.unit.bench.generator.model import parsed_lines

Record = dict[str, Any]


@cache
def planned(scenario: str, seed: int, events: int) -> Trace:
    """A trace of some events."""
    return plan_trace(load_scenario(scenario), events, seed)


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
    """A scenario with other keys in one of its parts."""
    document = yaml.safe_load((FOLDER / f"{scenario}.yaml").read_text())
    document[part] |= keys
    return Scenario.model_validate(document)
