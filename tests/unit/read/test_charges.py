"""Who paused whom, and what each tenant used: every row by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.config.owners import Owner, owner_of
from app.config.settings import load_settings
from app.errors import UserError
from tests.support.charges import (
    BILLS,
    BLAMED,
    NONE,
    OWNERS,
    PAIR,
    PAUSES,
    STATS,
    USED,
    Ask,
    Json,
    ask,
)
from tests.support.throttle_rows import OTHER, TOPIC, window, write

__all__ = ["ask"]


def test_blame_by_topic(ask: Ask) -> None:
    """OTHER is paused for 5 s: 3 s by TOPIC, 1 s by BILLS, 1 s by the broker's limit. It used 20 of
    100 messages and 1 of 10 bytes per second; BILLS 80 of 100."""
    assert ask("blame", "by=pair", throttle_events=PAUSES, topic_throttle_stats=STATS) == BLAMED


def test_blame_by_tenant(ask: Ask) -> None:
    """corp is paused for 3 s: 2 s by acme, 1 s by itself. acme is paused in all 5 s."""
    assert ask("blame", "by=tenant-pair", throttle_events=PAUSES, topic_throttle_stats=STATS) == [
        {
            **PAIR,
            "culprit": "acme",
            "victim": "corp",
            "pauses": 1,
            "paused_s": 2.0,
            "share_of_victims_pauses": 2 / 3,
            "victim_use": 0.8,
            "victim_below_half": False,
            "culprit_team": "shop",
            "culprit_contact": "#shop",
            "victim_team": "books",
            "last_pause": "2023-11-14T22:14:01Z",
        },
        {
            **PAIR,
            "culprit": "corp",
            "victim": "acme",
            "pauses": 1,
            "paused_s": 1.0,
            "share_of_victims_pauses": 0.2,
            "victim_use": 0.2,
            "victim_below_half": True,
            "culprit_team": "books",
            "culprit_contact": None,
            "victim_team": "payments",
            "first_pause": "2023-11-14T22:14:07Z",
            "last_pause": "2023-11-14T22:14:07Z",
        },
    ]


def test_a_victim_without_a_limit_of_its_own_is_not_measured(ask: Ask) -> None:
    found = ask(
        "blame",
        "by=pair",
        throttle_events=PAUSES[:2],
        topic_throttle_stats=[window(0, topic=OTHER, limit_msgs=None, limit_bytes=None)],
    )
    assert [(row["victim_use"], row["victim_below_half"]) for row in found] == [(None, None)] * 2


USERS = {"etl-1": 0, "etl-2": 0, "bob": 0}
SHOP = {"teams": ["shop"], "contacts": ["#shop"]}


def test_what_each_tenant_used_in_each_month(ask: Ask) -> None:
    assert ask("showback", **USED) == [
        {**NONE, **SHOP, "month": "2023-12", "name": "acme", "messages": 7, "bytes": 70},
        {
            **NONE,
            "name": "acme",
            "messages": 11,
            "bytes": 105,
            "paused_s": 2.75,
            "backlog_byte_s": 7200.0,
            "cache_byte_s": 3000.0,
            "teams": ["payments", "shop"],
            "contacts": ["#pay", "#shop"],
            "cost_centres": ["4711"],
        },
        {**NONE, "name": "corp", "messages": 3, "bytes": 30, "teams": ["books"]},
        # Users of Kafka have no tenant.
        {**NONE, "name": "etl-1", "new_ids": 4, "teams": ["data"], "cost_centres": ["1"]},
        {**NONE, "name": "etl-2", "new_ids": 2, "teams": ["data"], "cost_centres": ["1"]},
        {**NONE, "name": "bob", "new_ids": 1},
    ]


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("topic", {TOPIC: 10, OTHER: 1, BILLS: 3} | USERS),
        ("namespace", {"acme/orders": 11, "corp/bills": 3} | USERS),
        ("team", {"shop": 10, "payments": 1, "books": 3, "data": 0, "(no team)": 0}),
        ("principal", USERS | {"(no principal)": 14}),
    ],
)
def test_what_others_used(ask: Ask, by: str, names: dict[str, int]) -> None:
    found = ask("showback", f"by={by}", "until=2023-12-01", **USED)
    assert {row["name"]: row["messages"] for row in found} == names


def test_without_owners_the_columns_are_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(str(tmp_path), "topic_throttle_stats", USED["topic_throttle_stats"][:1])
    assert main(["query", "showback", "--warehouse", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["teams"], row["messages"]) == ("acme", None, 10)


@pytest.mark.parametrize(
    ("names", "team"),
    [
        ({"topic": OTHER}, "payments"),
        ({"topic": f"{OTHER}-partition-3"}, "payments"),
        ({"topic": TOPIC}, "shop"),
        ({"topic": BILLS, "cluster": "east"}, "books"),
        ({"topic": BILLS, "cluster": "best"}, None),
        ({"topic": BILLS}, None),
        ({"principal": "User:etl-1"}, "data"),
        ({"principal": "etl"}, "data"),
        ({"topic": "orders"}, None),
        ({}, None),
    ],
)
def test_the_first_rule_that_fits_names_the_owner(names: dict[str, str], team: str | None) -> None:
    found = owner_of([Owner(**rule) for rule in OWNERS], **names)
    assert (found and found.team) == team


def test_explain_names_the_owner(ask: Ask, tmp_path: Path, capsys: Any) -> None:
    ask("blame", "by=pair", throttle_events=PAUSES)
    words = ["explain", "topic", "acme/orders/paid", "--config", str(tmp_path / "weir.yaml")]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[1] == "owner: payments, #pay, 4711"
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["owner"] == {
        "team": "payments",
        "contact": "#pay",
        "cost_centre": "4711",
    }


@pytest.mark.parametrize(
    ("rule", "mistake"),
    [
        (
            {"team": "a"},
            "[0]: names nothing (allowed: cluster, tenant, namespace, topic, principal)",
        ),
        ({"tenant": "acme"}, "[0].team: field required"),
        ({"tenant": "acme", "team": "a", "mail": "x"}, "[0].mail: unknown key (allowed: cluster,"),
        ({"topic": "a/[bc]/d", "team": "a"}, "[0].topic: 'a/[bc]/d' has brackets"),
        ({"namespace": "acme", "team": "a"}, "[0].namespace: 'acme' is not tenant/namespace"),
    ],
)
def test_a_wrong_rule_is_refused_with_file_and_key(
    tmp_path: Path, rule: Json, mistake: str
) -> None:
    (tmp_path / "owners.yaml").write_text(json.dumps([rule]))
    config = tmp_path / "weir.yaml"
    config.write_text("owner_files: [owners.yaml]\n")
    with pytest.raises(UserError) as found:
        load_settings(config)
    assert f"{tmp_path}/owners.yaml: {mistake}" in str(found.value)
