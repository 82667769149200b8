"""The examples of docs/semantics/client_quotas.md, judged by the core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from app.config.policies import problems
from state.client_quotas.outputs import LEVELS, RULES
from state.client_quotas.parameters import ClientQuotasParameters
from tests.unit.state.client_quota_trace import T0, numbered, play, policy, quota, request
from tests.unit.state.shipping import Row

PAGE = Path(__file__).resolve().parents[3] / "docs" / "semantics" / "client_quotas.md"


def told(rows: dict[str, list[Row]], *columns: str) -> list[tuple[Any, ...]]:
    """Time since the start (ms), rate to two places, throttle time and some columns of verdicts."""
    return [
        (
            r["ts_wall_ms"] - T0,
            round(r["rate"], 2),
            r["throttle_ms"],
            *(r[column] for column in columns),
        )
        for r in rows["client_quota_verdicts"]
    ]


def test_a_burst_passes() -> None:
    records = [
        request(at_ms, charged_bytes=size) for at_ms, size in ((0, 1000), (500, 50), (600, 100))
    ]
    rows = play(
        [numbered(records)], policies=[quota("a", producer_byte_rate=100)], until_ms=T0 + 700
    )
    assert told(rows, "window_ms") == [
        (0, 100.0, 0, 10_000),
        (500, 100.0, 0, 10_500),
        (600, 108.49, 900, 10_600),
    ]


def test_network_threads_that_are_learned_at_once() -> None:
    answers = [(40 * n, 0) for n in range(17)] + [(680, 120), (840, 560)]
    made = [request(at, handler_time_ns=4 * 10**6, throttle_ms=ms) for at, ms in answers]
    policies = (quota("a", request_percentage=1),)
    rows = play([numbered(made)], until_ms=T0 + 5000, policies=policies)
    assert told(rows)[-2:] == [(680, 0.67, 0), (840, 1.05, 560)]


def test_a_level_that_changes() -> None:
    records = [
        policy(0, quota("alice", producer_byte_rate=10)),
        request(0, user="alice", charged_bytes=1000),
        policy(1000, quota("alice", "app", producer_byte_rate=10)),
        request(1500, user="alice", charged_bytes=1),
        policy(2000, quota("alice", "app")),
        request(2500, user="alice", charged_bytes=1),
    ]
    rows = play([numbered(records)], until_ms=T0 + 5000)
    assert told(rows, "bound_level", "user", "client") == [
        (0, 100.0, 90_000, "user", "alice", ""),
        (1500, 0.1, 0, "user_client", "alice", "app"),
        (2500, 95.33, 89_600, "user", "alice", ""),
    ]


@pytest.mark.parametrize("word", [*LEVELS, *RULES, *ClientQuotasParameters.model_fields])
def test_the_page_names_every_level_rule_and_parameter(word: str) -> None:
    assert f"`{word}`" in PAGE.read_text()


def test_the_policies_of_the_page_are_valid() -> None:
    text = PAGE.read_text().split("```yaml\n")[1].split("```")[0]
    documents = yaml.safe_load(text)["policies"]
    assert len(documents) == 4
    assert [wrong for document in documents for wrong in problems(document)] == []
