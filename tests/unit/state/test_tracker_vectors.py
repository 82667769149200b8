"""The connection tracker against rate_limits.json and what the class of Pulsar 4.2.4 answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from state.rate_limits import tracker
from state.rate_limits.layout import TYPES
from state.rate_limits.outputs import TRANSITIONS, TYPE_NAMES
from tests.reference.tracker import REENTRANT, UNKNOWN, Tracker
from tests.reference.tracker import TYPES as REFERENCE_TYPES
from tests.unit.state.recorded import cases, vectors

VECTORS = "rate_limits.json"
RECORDED = "tracker-4.2.4.jsonl.gz"


class Compiled:
    """The compiled functions with the methods of the reference."""

    def __init__(self) -> None:
        self._states = np.zeros(TYPES, np.int32)

    def mark(self, name: str) -> str:
        return TRANSITIONS[tracker.mark_state(self._states, TYPE_NAMES.index(name), 0)]

    def unmark(self, name: str) -> str:
        return TRANSITIONS[tracker.unmark_state(self._states, TYPE_NAMES.index(name), 0)]

    @property
    def states(self) -> list[int]:
        return [int(self._states[TYPE_NAMES.index(name)]) for name in REFERENCE_TYPES]

    @property
    def active(self) -> bool:
        return bool(tracker.any_active(self._states))


KINDS = pytest.mark.parametrize("kind", [Compiled, Tracker])


@KINDS
def test_recorded_transitions_and_states(kind: type) -> None:
    about, *rest = cases(RECORDED)
    types = [[name, name in REENTRANT] for name in REFERENCE_TYPES]
    assert about["types"] == types
    assert tuple(name for name in TYPE_NAMES if name != UNKNOWN) == REFERENCE_TYPES
    for case in rest:
        t = kind()
        seen = []
        for action, name in case["ops"]:
            transition = t.mark(name) if action == "mark" else t.unmark(name)
            seen.append([transition, sum(t.states), t.states])
        assert seen == case["out"], case["id"]


@KINDS
@pytest.mark.parametrize("vector", vectors(VECTORS, "tracker"), ids=lambda v: v["id"])
def test_vector(kind: type, vector: dict[str, Any]) -> None:
    assert vector["params"] == {"throttle_tracker": "per_type"}
    t = kind()
    for step in vector["steps"]:
        transition = getattr(t, step["op"])(step["throttle_type"])
        seen = {"transition": transition, "reads_paused": t.active, "count": sum(t.states)}
        assert {key: seen[key] for key in step["expect"]} == step["expect"], step
