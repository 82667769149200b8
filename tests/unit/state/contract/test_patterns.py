"""Documents for many names: rows are those of a document for each name that they match."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config.levels import compiled
from state.engine.globs import SCOPES
from tests.reference.policies import full_name
from tests.support.effort import drawn
from tests.unit.state.contract.contract_traces import SEEDS
from tests.unit.state.contract.jobs import Job, Sample, assert_same, cut, with_walls
from tests.unit.state.contract.patterns import KINDS, names_of, patterns, texts


@pytest.mark.parametrize(
    ("judge", "traces"), KINDS, ids=lambda x: getattr(x, "name", x).replace(" ", "-")
)
def test_patterns_judge_as_a_document_for_each_name(judge: Job, traces: str) -> None:
    job = judge

    @drawn(40)
    @given(job.traces[traces], SEEDS, st.booleans())
    def check(trace: Any, seed: int, in_pieces: bool) -> None:
        order, by = random.Random(seed), job.sample(trace)
        names = names_of(by.records)
        many = patterns(job, names, order) if any(names.values()) else []
        exact = [json.loads(text) for text in by.policies]
        said = {(d["scope"], full_name(d["name"])) for d in exact}
        blank = [
            {"scope": scope, "name": name, "limits": {}}
            for scope in ("topic", "namespace", "user")
            for name in names[scope]
            if (scope, full_name(name)) not in said
        ]
        config = texts(compiled([*many, *exact]))
        resolved = texts(d for d in compiled([*many, *exact, *blank]) if d["scope"] not in SCOPES)
        batches = cut(with_walls(by.records), order) if in_pieces else [by.records]
        rows = [
            job.play(batches, Sample((), by.params, policies, by.until_ms))
            for policies in (config, resolved)
        ]
        assert_same(*rows)

    check()
