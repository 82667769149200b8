"""The command `policy suggest publish` over archives, held against the job itself."""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from app.cli import main
from app.config.settings import Settings, load_settings
from app.jobs.rate_limits.whatif.command import PublishRequest, find
from app.jobs.rate_limits.whatif.history import LIMITS, History
from app.jobs.rate_limits.whatif.owners import SCOPES, TopicOwners
from app.jobs.rate_limits.whatif.search import point, smallest
from app.jobs.rate_limits.whatif.verify import throttled
from app.read.relations import Warehouse
from app.whatif import policy_document
from app.whatif.replay.event_span import WHOLE
from state.policies import LIMIT_TYPES
from state.rate_limits.alone import Rules
from tests.support.effort import examples
from tests.unit.whatif.suggest.traces import (
    START_MS,
    Row,
    archive,
    by_hand,
    drawn,
    publish,
    record,
)

Capture = pytest.CaptureFixture[str]
Make = Callable[..., Settings]
LITTLE = ("--min-publishes", "1", "--min-history", "0s")
GROUPS = [
    {"scope": "tenant", "name": "t", "limits": {"resource_group": "g"}},
    {"scope": "namespace", "name": "t/b", "limits": {"resource_group": "h"}},
]
IDLE_MS = 600_000


def warehouse(make: Make, rows: Sequence[Row], **changes: Any) -> Settings:
    settings = make(**changes)
    archive(settings, list(rows))
    return settings


def answer(capsys: Capture, settings: Settings, *words: str, code: int = 0) -> Any:
    done = main(
        ["policy", "suggest", "publish", "--warehouse", settings.warehouse, "--json", *words]
    )
    out = capsys.readouterr()
    assert done == code, out
    return json.loads(out.out)


@pytest.mark.parametrize(
    ("share", "needed", "throttled_share"),
    [
        # the largest publish must leave a balance above 0
        ("0", 101, 0.0),
        ("0.52", 101, 0.0),
        # 100 of 190 messages are in the last publish: the others need 11
        ("0.53", 11, 100 / 190),
        ("1", 1, 1.0),
    ],
)
def test_the_smallest_limit_of_a_trace_by_hand(
    share: str, needed: int, throttled_share: float, make_settings: Make, capsys: Capture
) -> None:
    settings = warehouse(make_settings, by_hand())
    found = answer(capsys, settings, *LITTLE, "--rate", "messages", "--share", share, "--verify")
    (row,) = found["suggestions"]
    assert "alone" not in row
    assert row["name"] == "persistent://t/a/x" and row["publishes"] == 10 and row["total"] == 190
    assert (row["needed"], row["limit"]) == (needed, needed)
    assert row["throttled_share"] == pytest.approx(throttled_share)
    assert found["verified"] is True


def digested(rows: list[Row]) -> list[Row]:
    """The same with a digest for the publishes of each second."""
    sums: dict[int, Row] = {}
    for r in rows:
        if r["event_type"] == "publish":
            second = r["ts_wall_ms"] // 1000
            one = sums.setdefault(second, {**r, "event_type": "publish_digest", "publishes": 0})
            one["publishes"] += 1
            for name in ("num_messages", "entry_bytes"):
                one[name] += r[name] if one["publishes"] > 1 else 0
            for name in ("ts_wall_ms", "ts_mono_ns"):
                one[name] = r[name]
    return [r for r in rows if r["event_type"] != "publish"] + list(sums.values())


def test_digests_are_charged_as_one_publish_each(make_settings: Make, capsys: Capture) -> None:
    """Five publishes of ten messages in the busiest second, each beside two in another one."""
    rows = [
        publish(1000 * second + 100 * i, 10 * second + i, "t/a/x", 10)
        for second, publishes in enumerate([2, 5, 2, 2])
        for i in range(publishes)
    ]
    settings = warehouse(make_settings, digested(rows))
    words = [*LITTLE, "--rate", "messages", "--share", "0"]
    (row,) = answer(capsys, settings, *words)["suggestions"]
    assert (row["publishes"], row["total"], row["limit"]) == (11, 110, 51)
    told = ["policy", "suggest", "publish", "--warehouse", settings.warehouse, *words]
    assert main(told) == 0
    assert "Charged as one publish each: 4 digests." in capsys.readouterr().out
    assert main([*told, "--verify"]) == 2
    assert "the archive has digests" in capsys.readouterr().err


def test_one_publish_that_decides_is_marked(make_settings: Make, capsys: Capture) -> None:
    """100 messages in one publish among publishes of ten."""
    settings = warehouse(make_settings, by_hand())
    found = answer(capsys, settings, *LITTLE, "--headroom", "0.5")
    assert [(r["limit"], r["decided_by"], r["without"]) for r in found["suggestions"]] == [
        (152, "one publish", 17),  # 101 and 11, and half of them
        (15_002, "one publish", 1502),
    ]
    # what may be throttled decides nothing
    found = answer(capsys, settings, *LITTLE, "--share", "0.53")
    assert [r["decided_by"] for r in found["suggestions"]] == [None, None]


def minutes(used: Sequence[int], topic: str = "t/a/x") -> list[Row]:
    """So many publishes of ten messages in each minute, at its beginning."""
    return [
        publish(60_000 * at, 1000 * at + i, topic, 10)
        for at, publishes in enumerate(used)
        for i in range(publishes)
    ]


@pytest.mark.parametrize(
    ("used", "limit", "without"),
    [
        ([3] * 12, 31, None),  # steady
        ([3] * 8 + [40, 40] + [3] * 2, 401, 31),
        ([3] * 8 + [30] + [3] * 3, 301, None),  # ten times the median is not more than that
        ([40, *[3] * 12, 40, 3, 3], 401, 31),  # two stretches
        ([40, *[3] * 12, 40, *[3] * 12, 40], 401, None),  # a habit
        ([3, 40, 3, 3], 401, None),  # too few minutes to say what is usual
    ],
)
def test_a_storm_is_told_apart_from_what_is_usual(
    used: list[int], limit: int, without: int | None, make_settings: Make, capsys: Capture
) -> None:
    settings = warehouse(make_settings, minutes(used))
    (row,) = answer(capsys, settings, *LITTLE, "--rate", "messages", "--share", "0", "--verify")[
        "suggestions"
    ]
    by = None if without is None else "storm"
    assert (row["limit"], row["decided_by"], row["without"]) == (limit, by, without)
    assert row["throttled_share"] == 0


def test_a_storm_in_one_cluster_does_not_decide_what_another_needs(
    make_settings: Make, capsys: Capture
) -> None:
    other = [{**row, "cluster": "d"} for row in minutes([38] * 12)]
    settings = warehouse(make_settings, [*minutes([3] * 8 + [40] + [3] * 3), *other])
    found = answer(capsys, settings, *LITTLE, "--rate", "messages", "--share", "0")
    assert [(r["cluster"], r["limit"], r["decided_by"]) for r in found["suggestions"]] == [
        ("c", 401, None),
        ("d", 401, None),
    ]


@pytest.mark.parametrize(
    ("per", "limits"),
    [
        ("topic", {"scope": "topic", "name": "t/a/x"}),
        ("topic", {"scope": "namespace", "name": "t/a"}),
        ("namespace", {"scope": "namespace", "name": "t/a"}),
        ("group", {"scope": "resource_group", "name": "g"}),
    ],
)
def test_the_limit_in_force_is_beside_the_suggestion(
    per: str, limits: dict[str, str], make_settings: Make, capsys: Capture, tmp_path: Path
) -> None:
    """The configuration's document, and a newer one of the stream in cluster d."""
    of_group = {"scope": "tenant", "name": "t", "limits": {"resource_group": "g"}}
    rows = by_hand()
    stream = record(
        500,
        "policy",
        99,
        cluster="d",
        policy_json=json.dumps({**limits, "limits": {"publishRateInMsgs": 101}}),
    )
    settings = warehouse(make_settings, [*rows, *({**r, "cluster": "d"} for r in rows), stream])
    config = tmp_path / "weir.yaml"
    policies = [of_group, {**limits, "limits": {"publishRateInMsgs": 100}}]
    config.write_text(
        yaml.safe_dump({"source": {"format": "files", "path": "in"}, "policies": policies})
    )
    words = [*LITTLE, "--per", per, "--config", str(config)]
    found = answer(capsys, settings, *words)
    assert [
        (r["cluster"], r["rate"], r["in_force"], r["change"]) for r in found["suggestions"]
    ] == [
        ("c", "messages", 100, "raise"),
        ("c", "bytes", None, "new"),
        ("d", "messages", 101, "same"),
        ("d", "bytes", None, "new"),
    ]
    # two of the limits that are in force, and one publish
    words = ["policy", "suggest", "publish", "--warehouse", settings.warehouse, *words]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "cluster", "name", "limit", "in_force", "change", "decided_by", "without",
    ]  # fmt: skip
    assert lines[2].split()[0::2] == ["c", "101/s", "raise", "publish"]
    assert lines[3].split()[2:] == ["10.0", "kB/s", "new", "one", "publish", "1.0", "kB/s"]
    assert lines[-1].startswith("decided_by: one publish, or a storm")


def test_the_file_names_what_decides_its_limits(
    make_settings: Make, capsys: Capture, tmp_path: Path
) -> None:
    settings = warehouse(make_settings, minutes([3] * 8 + [40] + [3] * 3, "t/a/x\ny"))
    out = tmp_path / "policies.yaml"
    words = ["--rate", "messages", "--out", str(out)]
    answer(capsys, settings, *LITTLE, "--share", "0", *words)
    _, note, *rest = out.read_text().splitlines()
    assert note == (
        "# persistent://t/a/x\\ny: publishRateInMsgs 401 is decided by a storm: without it 31 is"
        " enough"
    )
    assert not any(line.startswith("#") for line in rest)
    assert main(["policy", "check", str(out)]) == 0


@pytest.mark.parametrize("columns", [80, 120])
def test_the_suggestion_is_seen_at_every_width(
    columns: int, make_settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = warehouse(
        make_settings, minutes([3] * 8 + [40] + [3] * 3, "shop/orders/created-000")
    )
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    words = ["policy", "suggest", "publish", "--warehouse", settings.warehouse, *LITTLE]
    assert main([*words, "--share", "0"]) == 0
    lines = terminal.getvalue().splitlines()
    assert all(len(line) <= columns for line in lines[:-1])
    assert lines[2].split() == ["shop/orders/created-000", "401/s", "new", "storm", "31/s"]


def test_others_are_paused_until_the_debt_is_repaid(make_settings: Make, capsys: Capture) -> None:
    settings = warehouse(make_settings, by_hand())
    found = answer(
        capsys, settings, *LITTLE, "--rate", "messages", "--share", "0.6", "--headroom", "3.5"
    )
    (row,) = found["suggestions"]
    # 50 - 100 = -50: 51 tokens at 50 a second, for one other topic on the connection
    assert (row["needed"], row["limit"], row["pauses"]) == (11, 50, 1)
    assert row["paused_s"] == row["victim_s"] == pytest.approx(1.02, abs=1e-6)


def test_a_percentile_is_what_is_left_of_the_share(make_settings: Make, capsys: Capture) -> None:
    settings = warehouse(make_settings, by_hand())
    by_share = answer(capsys, settings, *LITTLE, "--share", "0.53")
    assert answer(capsys, settings, *LITTLE, "--percentile", "47") == by_share


def test_bytes_are_limited_by_their_own_key(
    make_settings: Make, capsys: Capture, tmp_path: Path
) -> None:
    settings = warehouse(make_settings, by_hand())
    out = tmp_path / "policies.yaml"
    found = answer(capsys, settings, *LITTLE, "--rate", "bytes", "--out", str(out))
    assert [row["limit"] for row in found["suggestions"]] == [10_001]
    assert yaml.safe_load(out.read_text()) == [
        {"scope": "topic", "name": "persistent://t/a/x", "limits": {"publishRateInBytes": 10_001}},
    ]


def test_both_limits_are_in_one_document_and_judged_together(
    make_settings: Make, capsys: Capture, tmp_path: Path
) -> None:
    # 191 messages and 19,010 bytes; each limit throttles one publish of its own
    rows = [
        *by_hand()[:-2],
        publish(10_000, 20, "t/a/x", 100, entry_bytes=10),
        publish(60_000, 21, "t/a/x", 1, entry_bytes=10_000),
        by_hand()[-1] | {"seq": 22},
    ]
    settings = warehouse(make_settings, rows)
    out = tmp_path / "policies.yaml"
    words = [*LITTLE, "--share", "0.53", "--verify", "--out", str(out)]
    found = answer(capsys, settings, *words)
    assert found["rate"] == "both" and found["verified"] is True
    assert [(r["rate"], r["total"], r["needed"], r["limit"]) for r in found["suggestions"]] == [
        ("messages", 191, 11, 11),
        ("bytes", 19_010, 1001, 1001),
    ]
    assert [r["throttled_share"] for r in found["suggestions"]] == pytest.approx(
        [101 / 191, 10_010 / 19_010]
    )
    assert {p["rate"] for p in found["curve"]} == {"messages", "bytes"}
    assert yaml.safe_load(out.read_text()) == [
        {
            "scope": "topic",
            "name": "persistent://t/a/x",
            "limits": {"publishRateInMsgs": 11, "publishRateInBytes": 1001},
        }
    ]
    assert main(["policy", "check", str(out)]) == 0
    # 101 of 191 messages are too many for 0.527: one of the two publishes has to pass. By one
    # factor the limit on messages gets to 101 first (9.19 times 11), and that on bytes goes back.
    words[words.index("0.53")] = "0.527"
    capsys.readouterr()
    found = answer(capsys, settings, *words)
    assert [(r["rate"], r["alone"], r["needed"]) for r in found["suggestions"]] == [
        ("messages", 11, 101),
        ("bytes", 1001, 1001),
    ]
    assert [r["throttled_share"] for r in found["suggestions"]] == pytest.approx(
        [1 / 191, 10_000 / 19_010]
    )
    assert found["verified"] is True


@pytest.mark.parametrize("per", ["namespace", "group"])
def test_both_limits_of_a_namespace_and_of_a_group(
    per: str, make_settings: Make, capsys: Capture, tmp_path: Path
) -> None:
    settings = warehouse(make_settings, by_hand())
    config, out = tmp_path / "weir.yaml", tmp_path / "policies.yaml"
    groups = [{"scope": "namespace", "name": "t/a", "limits": {"resource_group": "g"}}]
    config.write_text(
        yaml.safe_dump({"source": {"format": "files", "path": "in"}, "policies": groups})
    )
    found = answer(
        capsys,
        settings,
        *LITTLE,
        "--per",
        per,
        "--share",
        "0",
        "--verify",
        "--out",
        str(out),
        "--config",
        str(config),
    )
    assert found["verified"] is True
    assert [r["throttled_share"] for r in found["suggestions"]] == [0, 0]
    assert yaml.safe_load(out.read_text()) == [
        {
            "scope": SCOPES[per],
            "name": {"namespace": "t/a", "group": "g"}[per],
            "limits": {"publishRateInMsgs": 101, "publishRateInBytes": 10_001},
        }
    ]


@pytest.mark.parametrize("seed", range(examples(24)))
def test_limits_do_to_a_drawn_trace_what_the_job_does(seed: int, make_settings: Make) -> None:
    rng = random.Random(seed)
    per, rate = rng.choice(list(SCOPES)), rng.choice(list(LIMITS))
    settings = warehouse(
        make_settings,
        drawn(seed),
        policies=GROUPS,
        idle_state_ms=IDLE_MS,
        rate_limits={
            "tokenbucket": rng.choice(("saturating", "wrapping", "per_tick")),
            "release_condition": rng.choice(("target", "positive")),
        },
    )
    owners = TopicOwners(Warehouse.of(settings.location), settings.policy_dicts(), per)
    history = History(Warehouse.of(settings.location), owners)
    params = settings.job_params("rate_limits")
    rules = Rules(
        ("saturating", "wrapping", "per_tick").index(params["tokenbucket"]),
        params["release_condition"] == "positive",
        IDLE_MS * 1_000_000,
    )
    limits = {one.name: rng.choice((1, 7, 60, 400, 3000)) for one in history.names}
    given = [
        policy_document.document(SCOPES[per], name, {LIMITS[rate]: limit})
        for name, limit in limits.items()
    ]
    of_job = {
        (cluster, name): share
        for (cluster, name, of), share in throttled(settings, per, given, owners, WHOLE).items()
        if of == rate
    }
    alone = {
        (one.cluster, one.name): point(traces[rate], limits[one.name], rules).throttled_share
        for one, traces, _ in history.traces(history.names)
    }
    assert len(alone) > 1
    assert alone == pytest.approx(of_job)


@pytest.mark.parametrize("seed", range(examples(12)))
def test_the_promise_holds_for_a_drawn_trace_and_the_curve_falls(
    seed: int, make_settings: Make, capsys: Capture
) -> None:
    settings = warehouse(make_settings, drawn(100 + seed))
    per = ("topic", "namespace")[seed % 2]
    share = (0.0, 0.05, 0.3)[seed % 3]
    found = answer(capsys, settings, *LITTLE, "--per", per, "--share", str(share), "--verify")
    assert found["broken"] == [] and found["suggestions"]
    for row in found["suggestions"]:
        own = [p for p in found["curve"] if (p["name"], p["rate"]) == (row["name"], row["rate"])]
        assert [p["limit"] for p in own] == sorted({p["limit"] for p in own})
        shares = [p["throttled_share"] for p in own]
        assert shares == sorted(shares, reverse=True)
        assert all((p["throttled_share"] <= share) == (p["limit"] >= row["alone"]) for p in own)
        assert row["throttled_share"] <= share and row["limit"] >= row["needed"] >= row["alone"]


def test_a_replay_with_the_file_keeps_the_share(
    make_settings: Make, capsys: Capture, tmp_path: Path
) -> None:
    """The file as a user takes it: `policy check`, then `replay --policy`."""
    settings = warehouse(make_settings, drawn(3, 1500))
    out, replayed = tmp_path / "policies.yaml", tmp_path / "replayed"
    found = answer(
        capsys, settings, *LITTLE, "--rate", "messages", "--share", "0.1", "--out", str(out)
    )
    assert main(["policy", "check", str(out)]) == 0
    assert (
        main(
            [
                "replay",
                "--warehouse",
                settings.warehouse,
                "--out",
                str(replayed),
                "--policy",
                str(out),
                "--jobs",
                "rate_limits",
                "--param",
                "rate_limits.extra_outputs=[publish_verdicts]",
            ]
        )
        == 0
    )
    verdicts = DeltaTable(str(replayed / "publish_verdicts")).to_pyarrow_table().to_pylist()
    for row in found["suggestions"]:
        mine = [v for v in verdicts if v["topic"].split("-partition-")[0] == row["name"]]
        beyond = sum(v["messages"] for v in mine if not v["messages_ok"])
        assert len(mine) == row["publishes"]
        assert beyond / sum(v["messages"] for v in mine) == pytest.approx(row["throttled_share"])
        assert row["throttled_share"] <= 0.1
    assert len(verdicts) == sum(row["publishes"] for row in found["suggestions"])


def test_clusters_share_a_document_that_is_enough_for_each(
    make_settings: Make, capsys: Capture, tmp_path: Path
) -> None:
    rows = by_hand()
    other = [
        {**r, "cluster": "d", "num_messages": (r.get("num_messages") or 0) * 2 or None}
        for r in rows
    ]
    settings = warehouse(make_settings, rows + other)
    out = tmp_path / "policies.yaml"
    found = answer(capsys, settings, *LITTLE, "--out", str(out), "--verify")
    assert {(r["cluster"], r["rate"]): (r["needed"], r["limit"]) for r in found["suggestions"]} == {
        ("c", "messages"): (101, 201),
        ("d", "messages"): (201, 201),
        ("c", "bytes"): (10_001, 10_001),
        ("d", "bytes"): (10_001, 10_001),
    }
    assert [d["limits"] for d in yaml.safe_load(out.read_text())] == [
        {"publishRateInMsgs": 201, "publishRateInBytes": 10_001}
    ]
    assert found["verified"] is True


def test_names_without_enough_history_are_counted(
    make_settings: Make, capsys: Capture, tmp_path: Path
) -> None:
    rows = [
        *by_hand(),
        publish(5, 90, "t/a/once", 1),
        publish(6, 91, "t/a/twice", 1),
        publish(9_000, 92, "t/a/twice", 1),
    ]
    settings = warehouse(make_settings, rows)
    found = answer(capsys, settings, "--min-publishes", "2", "--min-history", "10s")
    assert {row["name"] for row in found["suggestions"]} == {"persistent://t/a/x"}
    assert found["left_out"] == [
        {"reason": "fewer than 2 publishes (--min-publishes)", "names": ["persistent://t/a/once"]},
        {
            "reason": "less than 10 s between the first publish and the last (--min-history)",
            "names": ["persistent://t/a/twice"],
        },
    ]
    out = tmp_path / "none.yaml"
    assert (
        main(
            [
                "policy",
                "suggest",
                "publish",
                "--warehouse",
                settings.warehouse,
                "--verify",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert "3 without a limit: fewer than 100 publishes" in printed
    assert printed.endswith("No policies are written.\n") and "verified" not in printed
    assert not out.exists()


HOSTILE = [
    "t/a/x: [1]\n- scope: *",
    "t/a/<script>'\"&#",
    "t/a/[*]?{{7*7}}",
    "t/a/\u202e\x1b[31m",
    "t/a/\U0001f600 : - |",
    "t/a/- !!python/object",
]


def test_hostile_names_and_extreme_numbers_break_nothing(
    make_settings: Make, capsys: Capture, tmp_path: Path
) -> None:
    rows = [
        publish(100 * i, 10 * i + j, name, 5) for i in range(3) for j, name in enumerate(HOSTILE)
    ]
    rows += [
        publish(100 * i, 900 + i, "t/a/extreme", 2**31 - 1, entry_bytes=2**63 - 1 - i // 2)
        for i in range(3)
    ]
    rows += [publish(500, 990 + i, "t/a/large", 2**31 - 1, entry_bytes=2**62 - i) for i in range(2)]
    settings = warehouse(make_settings, rows)
    out = tmp_path / "p.yaml"
    found = answer(capsys, settings, *LITTLE, "--out", str(out), "--verify")
    limited: dict[str, dict[str, int]] = {}
    for row in found["suggestions"]:
        limited.setdefault(row["name"], {})[LIMITS[row["rate"]]] = row["limit"]
    both, one = set(LIMITS.values()), {LIMITS["messages"]}
    assert {name: set(limits) for name, limits in limited.items()} == {
        **{f"persistent://{name}": both for name in HOSTILE},
        "persistent://t/a/extreme": one,
        "persistent://t/a/large": one,
    }
    assert found["verified"] is True
    assert main(["policy", "check", str(out)]) == 0
    path = tmp_path / "weir.yaml"
    path.write_text(
        "warehouse: w\nsource: {format: files, path: in}\npolicies: p.yaml\n", encoding="utf-8"
    )
    kept = {(d["scope"], d["name"]): d["limits"] for d in load_settings(path).policy_dicts()}
    assert kept == {("topic", name): limits for name, limits in limited.items()}
    assert main(["policy", "suggest", "publish", "--warehouse", settings.warehouse, *LITTLE]) == 0
    assert "\x1b" not in capsys.readouterr().out
    found = answer(capsys, settings, *LITTLE, "--rate", "bytes", "--curve", "--verify")
    assert found["verified"] is True
    assert found["left_out"] == [
        {
            "reason": "no limit of 64 bits lets enough of its bytes pass",
            "names": ["persistent://t/a/extreme", "persistent://t/a/large"],
        },
    ]


def test_a_file_of_others_is_not_overwritten(
    make_settings: Make, capsys: Capture, tmp_path: Path
) -> None:
    settings = warehouse(make_settings, by_hand())
    own = tmp_path / "own.yaml"
    own.write_text("- scope: topic\n", encoding="utf-8")
    words = ["policy", "suggest", "publish", "--warehouse", settings.warehouse, *LITTLE]
    assert main([*words, "--out", str(own)]) == 2
    assert "policy suggest did not write it" in capsys.readouterr().err
    assert own.read_text(encoding="utf-8") == "- scope: topic\n"
    assert main([*words, "--out", str(tmp_path / "new.yaml")]) == 0
    assert main([*words, "--out", str(tmp_path / "new.yaml")]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--per", "user"], "allowed: topic, namespace, group; policy suggest producer-ids"),
        (["--per", "broker"], "allowed: topic, namespace, group"),
        (["--rate", "requests"], "allowed: messages, bytes, both"),
        (["--share", "1.5"], "--share"),
        (["--percentile", "101"], "--percentile"),
        (["--share", "0.1", "--percentile", "99"], "leave out one of the two"),
        (["--headroom", "-1"], "--headroom"),
        (["--headroom", "nan"], "--headroom"),
        (["--share", "nan"], "--share"),
        (["--percentile", "nan"], "--percentile"),
        (["--min-history", "soon"], "'soon' is not a duration"),
        (["--from", "2026-01-02", "--to", "2026-01-01"], "--from is not before --to"),
        (["--out", "nowhere/p.yaml"], "nowhere does not exist"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_wrong_option_is_refused(
    words: list[str],
    said: str,
    make_settings: Make,
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = warehouse(make_settings, by_hand())
    assert main(["policy", "suggest", "publish", "--warehouse", settings.warehouse, *words]) == 2
    assert said in capsys.readouterr().err


def test_a_span_without_publishes_is_refused(make_settings: Make, capsys: Capture) -> None:
    settings = warehouse(make_settings, by_hand())
    words = ["policy", "suggest", "publish", "--warehouse", settings.warehouse]
    assert main([*words, "--to", str(START_MS)]) == 2
    assert "has no publishes" in capsys.readouterr().err
    assert main([*words, "--per", "group"]) == 2
    assert "has no publishes" in capsys.readouterr().err


def test_a_span_is_the_history(make_settings: Make, capsys: Capture) -> None:
    settings = warehouse(make_settings, by_hand())
    found = answer(capsys, settings, *LITTLE, "--to", str(START_MS + 10_000), "--verify")
    assert [row["needed"] for row in found["suggestions"]] == [11, 1001]
    assert found["verified"] is True


def test_the_keys_of_the_limits_are_those_of_documents() -> None:
    for scope in SCOPES.values():
        assert set(LIMITS.values()) <= set(LIMIT_TYPES[scope])


def test_what_was_found_is_the_same_twice(make_settings: Make) -> None:
    settings = warehouse(make_settings, drawn(9))
    asked = PublishRequest(min_publishes=1, min_history_ms=0)
    first, second = (
        find(
            Warehouse.of(settings.location),
            settings.job_params("rate_limits"),
            asked,
            TopicOwners(Warehouse.of(settings.location), settings.policy_dicts(), "topic"),
        )
        for _ in range(2)
    )
    assert first == second


def test_a_limit_below_what_is_needed_throttles_more(make_settings: Make) -> None:
    settings = warehouse(make_settings, drawn(11))
    history = History(
        Warehouse.of(settings.location),
        TopicOwners(Warehouse.of(settings.location), settings.policy_dicts(), "topic"),
    )
    for trace in (t for one in history.traces(history.names) for t in one.traces.values()):
        needed = smallest(trace, 0.02, Rules())
        assert needed is not None
        assert point(trace, needed, Rules()).throttled_share <= 0.02
        assert needed == 1 or point(trace, needed - 1, Rules()).throttled_share > 0.02
