"""The command `policy diff --on`: the effects of two sets of policies over an archive."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import write_deltalake

from app.cli import main
from app.config.settings import load_settings
from app.read.relations import Warehouse
from app.tables import manifest, policy_log
from app.tables.definitions import TABLES
from app.terminal.interrupt import temporary_folder
from app.whatif.effect.compare import MEASURES, compared
from app.whatif.effect.effect_page import html_of
from app.whatif.effect.effect_text import About, plain
from app.whatif.replay.event_span import WHOLE
from tests.support.archive_rows import SCHEMA, START_MS, event
from tests.support.client_archive import client_limits, clients_archive
from tests.support.throttle_rows import frame

NONE = {"before": 0, "after": 0, "change": 0}
OVER, LATE, VICTIM = "persistent://t/ns/a", "persistent://t/ns/late", "persistent://u/ns/v"
Capture = pytest.CaptureFixture[str]


def moved(before: float, after: float) -> dict[str, float]:
    return {"before": before, "after": after, "change": after - before}


def policies(rate: int, size: int, ids: int) -> list[dict[str, Any]]:
    quota = {"limitSize": size, "policy": "consumer_backlog_eviction"}
    return [
        {"scope": "topic", "name": "t/ns/a", "limits": {"publishRateInMsgs": rate}},
        {
            "scope": "topic",
            "name": "t/ns/late",
            "limits": {"backlog_quota": {"destination_storage": quota}},
        },
        {"scope": "user", "name": "etl", "limits": {"producer_ids_rate": ids}},
    ]


def small_archive() -> Iterator[dict[str, Any]]:
    """Of a topic that publishes 80 messages at once beside another one on its connection, a backlog
    of a hundred entries, and a user with six new ids."""
    own = {"event_type": "publish", "cnx_id": "x", "producer_id": 1, "subscription": None}
    yield event(0, 0, **own, topic=VICTIM, num_messages=1)
    yield event(1, 1, **own, topic=OVER, num_messages=80)
    late = {"topic": LATE, "ledger_id": 7, "entry_id": None, "consumer": None}
    yield event(
        2,
        2,
        **late,
        event_type="ledger_state",
        subscription=None,
        ledger_entries=100,
        ledger_bytes=1000,
    )
    yield event(3, 3, **late, event_type="cursor_state", durable=True, mark_delete="7:-1")
    for i in range(6):
        yield event(
            10,
            4 + i,
            event_type="produce_batch",
            topic="orders",
            partition=0,
            principal="User:etl",
            client_id="c",
            producer_id=100 + i,
            subscription=None,
        )
    # later records let windows and checks come
    yield event(90_000, 20, **own, topic=VICTIM, num_messages=1)
    yield event(
        90_000,
        21,
        event_type="produce_batch",
        topic="orders",
        partition=0,
        principal="User:bob",
        client_id="c",
        producer_id=1,
        subscription=None,
    )
    yield event(90_000, 22, **late, event_type="cursor_state", durable=True, mark_delete="7:-1")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration of that archive, and two files of policies."""
    folder = tmp_path_factory.mktemp("small")
    rows = frame("events", list(small_archive()))
    write_deltalake(str(folder / "warehouse" / "events"), rows.cast(SCHEMA))
    (folder / "weir.yaml").write_text(
        yaml.safe_dump(
            {
                "warehouse": str(folder / "warehouse"),
                "shards": 1,
                "stats_window_ms": 1000,
                "policies": policies(1000, 1, 1),
                "producer_ids": {"producer.id.quota.window.num": 1},
            }
        )
    )
    (folder / "wide.yaml").write_text(yaml.safe_dump(policies(100, 2000, 3)))
    (folder / "tight.yaml").write_text(yaml.safe_dump(policies(50, 500, 1)))
    return folder


def diff(folder: Path, before: str, after: str, *more: str) -> int:
    return main(
        [
            "policy",
            "diff",
            str(folder / before),
            str(folder / after),
            "--config",
            str(folder / "weir.yaml"),
            *more,
        ]
    )


def answer(capsys: Capture, folder: Path, before: str, after: str, *more: str) -> Any:
    assert diff(folder, before, after, *more, "--json") == 0
    return json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


def test_digests_throttle_nobody_on_either_side(
    small: Path, capsys: Capture, tmp_path: Path
) -> None:
    """A thousand messages within a second, and what closes their window."""
    own = {"cnx_id": "x", "producer_id": 1, "subscription": None, "topic": OVER}
    digest = {"event_type": "publish_digest", "publishes": 1000, "num_messages": 1000}
    last = {"event_type": "publish", "num_messages": 1}
    rows = [event(999, 0, **own, **digest), event(90_000, 1, **own, **last)]
    table = frame("events", rows).cast(SCHEMA)
    write_deltalake(str(tmp_path / "warehouse" / "events"), table)
    for name in ("weir.yaml", "wide.yaml", "tight.yaml"):
        text = (small / name).read_text()
        (tmp_path / name).write_text(text.replace(str(small), str(tmp_path)))
    assert diff(tmp_path, "wide.yaml", "tight.yaml", "--on", "all") == 0
    assert (
        "The archive has 1 digest in place of single publishes: their messages are counted, and"
        " throttle nobody on either side."
    ) in " ".join(capsys.readouterr().out.split())


def test_effects_by_hand(small: Path, capsys: Capture) -> None:
    """A limit of 100 has room for 80 messages. One of 50 is 30 in debt: until the target of 1 is
    reached, 31 / 50 s and a nanosecond. A backlog of 1000 bytes is below its quota of 2000; one of
    500 skips 55 of the 100 entries down to 450 bytes. With a burst of 3 four ids pass, the fourth
    into the debt, and two are rejected, each for the 3600 / 3 s that repay it; with a burst of 1
    two pass, and four are rejected for 3600 s each."""
    found = answer(capsys, small, "wide.yaml", "tight.yaml", "--on", "all")
    paused = {
        "throttles": moved(0, 1),
        "pauses": moved(0, 1),
        "paused_s": moved(0, 0.620000001),
        "paused_own_s": moved(0, 0.620000001),
    }
    victim = {
        "pauses": moved(0, 1),
        "paused_s": moved(0, 0.620000001),
        "paused_others_s": moved(0, 0.620000001),
        "victims": moved(0, 1),
    }
    evicted = {
        "exceeded_checks": moved(0, 1),
        "evictions": moved(0, 1),
        "evicted_entries": moved(0, 55),
    }
    rejected = {"rejected_ids": moved(2, 4), "id_throttle_s": moved(2400, 14_400)}
    zero = {m.name: NONE for m in MEASURES}
    assert found["total"] == {
        **zero,
        **paused,
        **victim,
        **evicted,
        **rejected,
        "pauses": moved(0, 2),
        "paused_s": moved(0, 1.240000002),
    }
    assert found["tenants"] == [
        {"cluster": "c", "tenant": "t", **zero, **paused, **evicted},
        {"cluster": "c", "tenant": "u", **zero, **victim},
    ]
    assert found["topics"] == [
        {"cluster": "c", "topic": OVER, **zero, **paused},
        {"cluster": "c", "topic": VICTIM, **zero, **victim},
        {"cluster": "c", "topic": LATE, **zero, **evicted},
    ]
    assert found["users"] == [{"cluster": "c", "user": "etl", **zero, **rejected}]
    assert found["changed"] == {"tenants": 2, "topics": 3, "users": 1, "clients": 0}
    assert found["same"] is False and found["begins"] == []
    assert (found["from_ms"], found["to_ms"]) == (None, None)
    # a sixtieth of 90 s, in whole windows of a second
    assert [
        {key: value for key, value in row.items() if value != NONE}
        for row in found["times"]
        if any(row[key] != NONE for key in row if not key.endswith("_ms"))
    ] == [
        {
            "from_ms": START_MS,
            "to_ms": START_MS + 2000,
            "paused_s": moved(0, 1.240000002),
            "rejected_ids": moved(2, 4),
        },
        {"from_ms": START_MS + 60_000, "to_ms": START_MS + 62_000, "evicted_entries": moved(0, 55)},
    ]
    assert found["jobs"] == ["rate_limits", "producer_ids", "backlog", "entry_cache"]
    assert [(one["limit"], one["before"], one["after"]) for one in found["limits"]] == [
        ("publishRateInMsgs", 100, 50),
        ("backlog_quota.destination_storage.limitSize", 2000, 500),
        ("producer_ids_rate", 3, 1),
    ]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration of that archive, and two files of policies."""
    folder = tmp_path_factory.mktemp("clients")
    rows = frame("events", list(clients_archive()))
    write_deltalake(str(folder / "warehouse" / "events"), rows.cast(SCHEMA))
    settings = {"warehouse": str(folder / "warehouse"), "shards": 1, "queries": [["client_quotas"]]}
    (folder / "weir.yaml").write_text(yaml.safe_dump({**settings, "stats_window_ms": 1000}))
    (folder / "wide.yaml").write_text(yaml.safe_dump(client_limits(200, 1000, 10)))
    (folder / "tight.yaml").write_text(yaml.safe_dump(client_limits(100, 100, 2)))
    return folder


def test_effects_of_client_quotas_by_hand(clients: Path, capsys: Capture) -> None:
    """A limit of 100 is exceeded by the third request of user a, of 1150 bytes in 10.6 s: 900 ms. One of
    100 on what is sent to client web, whoever it is, by the second answer, of 1200 bytes in 10 s: 2 s.
    A bucket of 11 seconds of 2 is 8 short after 30 partitions: refused for 4 s, less 1 ms of tokens.
    Of three measured rates two are above 100, and one above 200."""
    found = answer(capsys, clients, "wide.yaml", "tight.yaml", "--on", "all")
    zero = {m.name: NONE for m in MEASURES}
    by_name = {
        "web": {"throttled_requests": moved(0, 1), "client_throttle_s": moved(0, 2)},
        "a": {"throttled_requests": moved(0, 1), "client_throttle_s": moved(0, 0.9)},
        "d": {"refused_requests": moved(0, 1), "client_throttle_s": moved(0, 3.999)},
        "m": {"rates_over_quota": moved(1, 2)},
    }
    assert {row["client"]: row for row in found["clients"]} == {
        name: {"cluster": "c", "client": name, **zero, **row} for name, row in by_name.items()
    }
    assert {key: value for key, value in found["total"].items() if value != NONE} == {
        "throttled_requests": moved(0, 2),
        "refused_requests": moved(0, 1),
        "client_throttle_s": moved(0, 6.899),
        "rates_over_quota": moved(1, 2),
    }
    assert found["changed"] == {"tenants": 0, "topics": 0, "users": 0, "clients": 4}
    assert found["jobs"] == ["client_quotas"]
    unlike = " ".join(found["unlike_what_happened"])
    assert "override 3 documents of the stream (user <default>, user a, user_client" in unlike
    assert "The archive has 3 measured rates of clients: rates_over_quota counts those" in unlike


def test_a_page_of_client_quotas_says_how_long_clients_wait(
    clients: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "page.html"
    assert diff(clients, "tight.yaml", "wide.yaml", "--on", "all", "--out", str(out)) == 0
    assert re.search(r"^client_throttle_s +6\.9 s +0 s +-6\.9 s ", capsys.readouterr().out, re.M)
    text = out.read_text("utf-8")
    assert "<h1>Clients are throttled 6.9 s less: 0 s in place of 6.9 s.</h1>" in text
    assert "4\N{NO-BREAK SPACE}clients differ." in text


def test_rows_bound_the_lists_and_not_the_totals(small: Path, capsys: Capture) -> None:
    whole = answer(capsys, small, "wide.yaml", "tight.yaml", "--on", "all")
    short = answer(capsys, small, "wide.yaml", "tight.yaml", "--on", "all", "--rows", "1")
    assert short["topics"] == whole["topics"][:1] and short["tenants"] == whole["tenants"][:1]
    assert (short["total"], short["changed"]) == (whole["total"], whole["changed"])
    assert diff(small, "wide.yaml", "tight.yaml", "--on", "all", "--rows", "1") == 0
    said = capsys.readouterr().out
    assert "1 of 3 rows; --rows N shows more" in said
    assert all(
        len(line) <= 160 for line in said.splitlines() if "  " in line and "--json" not in line
    )
    assert re.search(r"^paused_s +0 s +1\.2 s +1\.2 s  time that topics were paused$", said, re.M)


def test_equal_policies_change_nothing(config: Path, tmp_path: Path, capsys: Capture) -> None:
    found = answer(capsys, config.parent, config.name, config.name, "--on", "all")
    assert found["same"] is True and set(found["changed"].values()) == {0}
    assert found["total"]["throttles"]["before"] > 0 and found["total"]["rejected_ids"]["after"] > 0
    assert [found[name] for name in ("tenants", "topics", "users", "limits")] == [[]] * 4
    assert {values["change"] for values in found["total"].values()} == {0}
    assert diff(config.parent, config.name, config.name, "--on", "all") == 0
    assert "nothing differs" in capsys.readouterr().out


def halved(config: Path, folder: Path) -> None:
    """Files with the policies of a configuration, and with half of their publish rates."""
    documents = yaml.safe_load(config.read_text())["policies"]
    (folder / "a.yaml").write_text(yaml.safe_dump(documents))
    for document in documents:
        for key in ("publishRateInMsgs", "publishRateInBytes"):
            if document["limits"].get(key, 0) > 0:
                document["limits"][key] = max(document["limits"][key] // 2, 1)
    (folder / "b.yaml").write_text(yaml.safe_dump(documents))
    (folder / "weir.yaml").write_text(config.read_text())


def asked(capsys: Capture, warehouse: Path, *words: str) -> list[dict[str, Any]]:
    """The rows of a query."""
    assert main(["query", *words, "--warehouse", str(warehouse), "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


RANGE = ("2026-01-05T14:04:00Z", "2026-01-05T14:08:00Z")
SUMS = """
SELECT (SELECT count(*) FROM throttle_events WHERE action = 'mark') AS throttles,
  (SELECT sum(limited_times) FROM topic_throttle_stats) AS pauses,
  (SELECT count(DISTINCT (cluster, topic)) FROM topic_throttle_stats WHERE collateral_times > 0
     OR collateral_ns > 0) AS victims,
  (SELECT count(*) FROM producer_id_decisions WHERE verdict = 'rejected') AS rejected_ids,
  (SELECT sum(entries_skipped) FROM backlog_evictions) AS evicted_entries
"""


def test_numbers_are_those_of_two_replays(config: Path, tmp_path: Path, capsys: Capture) -> None:
    halved(config, tmp_path)
    keep = ["--on", "/".join(RANGE), "--warm-up", "3m", "--keep", str(tmp_path / "kept")]
    found = answer(capsys, tmp_path, "a.yaml", "b.yaml", *keep)
    assert found["begins"][0].startswith("begins empty at 2026-01-05T14:01:00Z: rows may differ")
    assert found["total"]["paused_s"]["change"] > 0
    for side, name in (("before", "a"), ("after", "b")):
        out = tmp_path / name
        assert (
            main(
                [
                    "replay",
                    "--config",
                    str(config),
                    "--policy",
                    str(tmp_path / f"{name}.yaml"),
                    "--from",
                    RANGE[0],
                    "--to",
                    RANGE[1],
                    "--warm-up",
                    "3m",
                    "--out",
                    str(out),
                ]
            )
            == 0
        )
        capsys.readouterr()
        for warehouse in (out, tmp_path / "kept" / side):
            (sums,) = asked(capsys, warehouse, SUMS)
            assert {key: found["total"][key][side] for key in sums} == sums
            tenants = asked(capsys, warehouse, "blame", "--by", "tenant")
            told = {row["tenant"]: row["paused_s"][side] for row in found["tenants"]}
            paused = {
                row["name"]: sum(row[key] for key in row if key.endswith("_s")) for row in tenants
            }
            assert {name: pytest.approx(paused.get(name, 0), abs=0.01) for name in told} == told
    again = answer(capsys, tmp_path, "a.yaml", "b.yaml", *keep)
    assert again == found
    assert (
        main(
            [
                "policy",
                "diff",
                str(tmp_path / "b.yaml"),
                str(tmp_path / "a.yaml"),
                "--config",
                str(config),
                *keep,
            ]
        )
        == 2
    )
    assert f"--keep {tmp_path / 'kept' / 'before'}: belongs to another replay" in (
        capsys.readouterr().err
    )


def copied(small: Path, folder: Path) -> list[str]:
    """The option for a copy of the warehouse."""
    return ["--warehouse", str(shutil.copytree(small / "warehouse", folder / "warehouse"))]


@pytest.fixture
def changed(small: Path, tmp_path: Path) -> list[str]:
    """The option for a warehouse whose run has taken the tight policies at 50 s only."""
    copy = copied(small, tmp_path)
    wide, tight = (
        load_settings(
            small / "weir.yaml",
            {"warehouse": copy[1], "policies": yaml.safe_load((small / name).read_text())},
        )
        for name in ("wide.yaml", "tight.yaml")
    )
    log = policy_log.begun(wide.policy_dicts(), wide.params_hashes(), 0, 0, None).with_next(
        tight.policy_dicts(), tight.params_hashes(), 1, START_MS + 50_000, 0, None
    )
    policy_log.keep(wide.location, "govern", log, {})
    offsets = tmp_path / "warehouse" / "_weir" / "checkpoints" / "govern" / "offsets"
    offsets.mkdir()
    (offsets / "0").write_text("")
    manifest.claim(wide.location, 2, None)
    manifest.record(wide.location, {"govern": wide.jobs})
    return copy


def test_policies_hold_from_the_beginning_whatever_the_run_had(
    small: Path, changed: list[str], tmp_path: Path, capsys: Capture
) -> None:
    found = answer(capsys, small, "wide.yaml", "tight.yaml", "--on", "all", *changed)
    assert found["total"]["throttles"] == moved(0, 1)
    out = tmp_path / "out"
    assert (
        main(
            [
                "replay",
                "--config",
                str(small / "weir.yaml"),
                *changed,
                "--out",
                str(out),
                "--policy",
                str(small / "tight.yaml"),
            ]
        )
        == 0
    )
    capsys.readouterr()
    (sums,) = asked(capsys, out, SUMS)
    assert sums["throttles"] == 0  # each version from its time on, as in the run


def test_a_data_file_of_the_archive_that_is_gone_is_named(
    small: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(small, tmp_path)
    (file,) = (tmp_path / "warehouse" / "events").rglob("*.parquet")
    file.unlink()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    out = ["--out", str(tmp_path / "out")]
    assert diff(small, "wide.yaml", "tight.yaml", "--on", "all", *copy) == 2
    refused = capsys.readouterr()
    assert main(["replay", "--config", str(small / "weir.yaml"), *copy, *out]) == 2
    assert (
        capsys.readouterr()
        == refused
        == (
            "",
            (
                f"weir: warehouse: {file} is gone: the archive has been compacted since it was opened\n"
                "begin again, into another folder\n"
            ),
        )
    )
    assert not list(temporary.iterdir()) and not (tmp_path / "out").exists()


def test_nothing_is_left_behind(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert diff(small, "wide.yaml", "tight.yaml", "--on", "all") == 0
    with pytest.raises(ZeroDivisionError), temporary_folder("weir-") as folder:
        (folder / "file").write_text("")
        assert list(tmp_path.iterdir()) == [folder]
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--out", "page.html"], "policy diff: --out goes with --on RANGE"),
        (["--rows", "3"], "policy diff: --rows goes with --on RANGE"),
        (["--on", "yesterday"], "--on yesterday: is not a range\nallowed: FROM/TO"),
        (["--on", "/"], "--on /: is not a range"),
        (["--on", "x/"], "--on x/: is not a time"),
        (["--on", "2026-01-06/2026-01-05"], "its begin is not before its end"),
        (["--on", "2026-01-07/"], "has no records from 2026-01-07T00:00:00Z"),
        (["--on", "2026-01-07/"], "weir: policy diff: the archive of "),
        (["--on", "all", "--warm-up", "1m"], "--warm-up goes with a range that has a begin"),
        (["--on", "all", "--jobs", "nothing"], "--jobs nothing: is not a job"),
        (["--on", "all", "--out", "nowhere/page.html"], "--out nowhere/page.html: the folder "),
        (["--on", "all", "--keep", "warehouse/kept"], "is in the warehouse that is replayed"),
        (["--on", "all", "--warehouse", "nowhere"], "warehouse: nowhere does not exist"),
    ],
)
def test_what_is_wrong_is_refused(
    more: Sequence[str],
    expected: str,
    small: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(small)
    words = ["policy", "diff", "wide.yaml", "tight.yaml"]
    assert main([*words, *(["--config", "weir.yaml"] if "--on" in more else []), *more]) == 2
    assert expected in capsys.readouterr().err
    assert not (small / "warehouse" / "kept").exists()


def test_policies_that_cannot_be_read_are_refused(
    small: Path, tmp_path: Path, capsys: Capture
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("[{scope: topic, name: a/b/c, limits: {publishRateInMsg: 1}}]")
    for path, expected in (
        (bad, "publishRateInMsg: no limit of scope topic"),
        (tmp_path / "none.yaml", "cannot be read"),
    ):
        assert (
            main(
                [
                    "policy",
                    "diff",
                    str(small / "wide.yaml"),
                    str(path),
                    "--on",
                    "all",
                    "--config",
                    str(small / "weir.yaml"),
                ]
            )
            == 2
        )
        assert expected in capsys.readouterr().err


def test_a_page_has_the_numbers(small: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "page.html"
    assert diff(small, "wide.yaml", "tight.yaml", "--on", "all", "--out", str(out)) == 0
    assert f"The page is in {out}." in capsys.readouterr().out
    text = out.read_text("utf-8")
    assert "<h1>Topics are paused 1.2 s longer: 1.2 s in place of 0 s.</h1>" in text
    assert text.count('<td class="number" data-label="evicted entries, after">55</td>') == 2
    assert text.count('<td class="number" data-label="paused (s), after">0.62</td>') == 4
    assert "backlog_quota.destination_storage.limitSize" in text
    assert text.count("<svg") >= 2 and "<script" not in text


def test_a_warehouse_without_rows_has_no_effects(tmp_path: Path) -> None:
    (tmp_path / "_weir").mkdir()
    found = compared(Warehouse(str(tmp_path)), Warehouse(str(tmp_path)), 20, 60_000)
    about = About("a", "b", WHOLE, [], [], [])
    assert found.same and plain(about, found)["total"]["throttles"] == NONE
    assert "Nothing differs." in html_of(about, found)
    assert set(TABLES) > {"throttle_events"}
