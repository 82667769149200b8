"""The poller: whole files, a memory that survives, no deletion out of a failure."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.config.pulsar_admin import PulsarAdminSettings
from app.errors import UserError
from app.sources import spool
from app.sources.pulsar.admin_documents import PolledTopic
from app.sources.pulsar.admin_poll import TOPIC_POLICIES, AdminPoller
from app.sources.spool import PollMemory, Spool
from app.tables.json_documents import Document
from tests.reference.words import words
from tests.support.servers.admin import AdminServer, break_off, hang, in_turn, status
from tests.support.waiting import wait_for
from tests.unit.sources.pulsar.conftest import MakeAdmin
from tests.unit.sources.pulsar.documents import AT, info, internal, publisher, stats, valid

NAME = "public/n1/t"
TOPIC = f"persistent://{NAME}"
Json = dict[str, Any]
DELETIONS = {"ledger_deleted", "cursor_deleted", "producer_closed"}


@pytest.fixture
def topic(server: AdminServer) -> str:
    """A topic that the server has, and lists."""
    server.answers["persistent/public/n1"] = [TOPIC]
    server.topic(NAME, internal=internal(), info=info(), stats=stats())
    return TOPIC


def lines(path: Path | None) -> list[Json]:
    """The records of a file, which must be valid and numbered; the last one is of the poll."""
    assert path is not None
    records = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    valid(records)
    first = records[0]["seq"]
    assert [record["seq"] for record in records] == list(range(first, first + len(records)))
    times = [record["ts_wall_ms"] for record in records]
    assert times == sorted(times)
    assert records[-1]["event_type"] == "poll"
    return records[:-1]


def kinds(path: Path | None) -> list[str]:
    return [record["event_type"] for record in lines(path)]


def visible(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


FULL = ["ledger_state", "ledger_state", "cursor_state", "cursor_state", "producer_created"]


def test_a_poll_is_one_whole_file(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path
) -> None:
    poller = AdminPoller(make_admin(), tmp_path)
    first = poller.poll_once(AT)
    second = poller.poll_once(AT + 60_000)
    assert kinds(first) == FULL
    assert kinds(second) == FULL[:4]
    assert first is not None and second is not None and first.name < second.name
    assert visible(tmp_path) == ["lock", "memory.json", "polls"]
    assert visible(poller.records) == [first.name, second.name]
    assert lines(second)[0]["seq"] == 6
    assert AT <= lines(first)[0]["ts_wall_ms"] < AT + 500
    assert (poller.last.polled, poller.last.skipped, poller.last.problems) == (1, 0, [])
    # Ledgers are asked for before what later documents must know of them.
    assert [path.rpartition("/")[2] for path in server.asked[:4]] == [
        *words("n1 internalStats internal-info stats")
    ]


def test_a_deletion_while_all_was_down_is_told(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path
) -> None:
    first = AdminPoller(make_admin(), tmp_path)
    first.poll_once(AT)
    first.close()
    server.topic(
        NAME,
        info=info(),
        stats=stats(publishers=[]),
        internal=internal(
            ledgers=[{"ledgerId": 5, "entries": 0, "size": 0}],
            cursors={"fast": {"markDeletePosition": "5:3"}},
        ),
    )
    path = AdminPoller(make_admin(), tmp_path).poll_once(AT + 60_000)
    assert kinds(path) == [
        *words("ledger_deleted cursor_deleted producer_closed ledger_state cursor_state")
    ]
    assert lines(path)[0]["seq"] == 6


@pytest.mark.parametrize("document", ["internal", "info", "stats"])
@pytest.mark.parametrize(
    "answer",
    [
        hang,
        break_off,
        status(500),
        status(404, "<html>"),
        status(404, {"reason": "not found"}),
        status(403, {"reason": "no"}),
        '{"ledgers": [',
        [],
        "null",
    ],
)
def test_no_deletion_follows_from_a_failure(
    server: AdminServer,
    make_admin: MakeAdmin,
    topic: str,
    tmp_path: Path,
    document: str,
    answer: Any,
) -> None:
    poller = AdminPoller(make_admin(timeout_ms=150), tmp_path)
    poller.poll_once(AT)
    good = {"internal": internal(), "info": info(), "stats": stats()}
    server.topic(NAME, **{**good, document: answer})
    assert lines(poller.poll_once(AT + 1000)) == []
    assert (poller.last.polled, poller.last.skipped) == (0, 1)
    assert TOPIC in poller.last.problems[0]
    server.topic(NAME, **good)
    assert kinds(poller.poll_once(AT + 2000)) == FULL[:4]
    assert len(visible(poller.records)) == 3


def test_one_bad_topic_does_not_hide_the_others(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path
) -> None:
    names = [f"public/n1/t{i}" for i in range(6)]
    for name in names:
        server.topic(name, internal=internal(), info=info(), stats=stats())
    server.topic(NAME, internal=hang, info=info(), stats=stats())
    server.answers["persistent/public/n1"] = [TOPIC, *(f"persistent://{name}" for name in names)]
    poller = AdminPoller(make_admin(timeout_ms=200), tmp_path)
    path = poller.poll_once(AT)
    assert {record["topic"] for record in lines(path)} == {f"persistent://{n}" for n in names}
    assert (poller.last.polled, poller.last.skipped) == (6, 1)


def test_a_topic_that_is_deleted(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path
) -> None:
    poller = AdminPoller(make_admin(), tmp_path)
    poller.poll_once(AT)
    server.forget(NAME)
    assert lines(poller.poll_once(AT + 1)) == [], "still listed: not believed"
    server.answers["persistent/public/n1"] = []
    assert kinds(poller.poll_once(AT + 1000)) == [
        *words("ledger_deleted ledger_deleted cursor_deleted cursor_deleted producer_closed")
    ]
    assert poller.last.gone == 1
    assert lines(poller.poll_once(AT + 2000)) == []
    assert poller.last.problems == []


def test_a_deleted_topic_whose_list_fails_is_asked_itself(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path
) -> None:
    poller = AdminPoller(make_admin(), tmp_path)
    poller.poll_once(AT)
    server.answers["persistent/public/n1"] = status(500)
    assert kinds(poller.poll_once(AT + 1000)) == FULL[:4]
    server.answers["persistent/public/n1"] = status(404, {"reason": "Namespace does not exist"})
    server.forget(NAME)
    assert set(kinds(poller.poll_once(AT + 2000))) == DELETIONS


def test_topics_that_are_named(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path
) -> None:
    for i in range(2):
        server.topic(f"public/n1/p-partition-{i}", internal=internal(), info=info(), stats=stats())
    server.answers["persistent/public/n1/p/partitions"] = {"partitions": 2}
    server.answers["persistent/public/n1/t/partitions"] = {"partitions": 0}
    named = ["public/n1/p", TOPIC, "public/n1/nothing", "public/n1/q-partition-1"]
    poller = AdminPoller(make_admin(namespaces=[], topics=named), tmp_path)
    path = poller.poll_once(AT)
    p = "persistent://public/n1/p-partition-"
    assert {record["topic"] for record in lines(path)} == {f"{p}0", f"{p}1", TOPIC}
    assert (poller.last.polled, poller.last.absent) == (3, 2)
    # Partitions that were there are asked for even if the topic is gone.
    server.answers["persistent/public/n1/p/partitions"] = status(404, {"reason": "not found"})
    for i in range(2):
        server.forget(f"public/n1/p-partition-{i}")
    path = poller.poll_once(AT + 1000)
    gone = {r["topic"] for r in lines(path) if r["event_type"] == "ledger_deleted"}
    assert gone == {f"{p}0", f"{p}1"}


def test_policies_once_and_when_they_change(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path
) -> None:
    rates = {"standalone": {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}}
    server.answers.update(
        {
            "namespaces/public/n1": {
                "publishMaxMessageRate": rates,
                "backlog_quota_map": {},
                "resource_group_name": "g",
            },
            "resourcegroups/g": {"publishRateInMsgs": 7, "publishRateInBytes": -1},
            "brokers/configuration/runtime": {"backlogQuotaCheckIntervalInSeconds": "2"},
            f"persistent/{NAME}/publishRate": status(204),
            f"persistent/{NAME}/backlogQuotaMap": {"message_age": {"limitTime": 9}},
            f"persistent/{NAME}/messageTTL": status(204),
            "clusters": ["standalone"],
        }
    )
    every = make_admin(policies=["namespace", "topic", "resource_group", "broker"])
    poller = AdminPoller(every, tmp_path)
    assert kinds(poller.poll_once(AT)) == [*["policy"] * 4, *FULL]
    poller.close()
    poller = AdminPoller(every, tmp_path)
    assert kinds(poller.poll_once(AT + 1)) == FULL[:4]
    server.answers.update(
        {
            "namespaces/public/n1": status(500),
            "brokers/configuration/runtime": status(403, {"reason": "no"}),
            f"persistent/{NAME}/backlogQuotaMap": hang,
        }
    )
    path = poller.poll_once(AT + 1000)
    assert kinds(path) == FULL[:4]
    assert (poller.last.polled, len(poller.last.problems)) == (1, 3)
    server.answers[f"persistent/{NAME}/backlogQuotaMap"] = {}
    assert [
        json.loads(r["policy_json"])
        for r in lines(poller.poll_once(AT + 2000))
        if r["event_type"] == "policy"
    ] == [{"scope": "topic", "name": TOPIC, "limits": {}}]


def test_policies_of_topics_that_are_switched_off_are_no_problem(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path
) -> None:
    """As with `topicLevelPoliciesEnabled=false`, the default before 2.11."""
    off = status(405, {"reason": "Topic level policies is disabled, to enable the topic level"})
    server.answers.update({f"persistent/{NAME}/{key}": off for key in TOPIC_POLICIES})
    poller = AdminPoller(make_admin(policies=["topic"]), tmp_path)
    assert poller.check() is None
    assert kinds(poller.poll_once(AT + 1)) == FULL
    assert poller.last.problems == []


@pytest.mark.parametrize(
    "answers",
    [
        {"brokers/configuration/runtime": {"clusterName": "standalone"}},
        {
            "brokers/configuration/runtime": status(403, {"reason": "no"}),
            "clusters": ["standalone"],
        },
    ],
)
def test_another_name_of_the_cluster_is_said_and_its_rates_are_taken(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path, answers: Json
) -> None:
    rates = {"standalone": {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}}
    server.answers.update({"namespaces/public/n1": {"publishMaxMessageRate": rates}, **answers})
    scopes = ["namespace", "broker"] if "clusters" not in answers else ["namespace"]
    admin = make_admin(cluster="east", policies=scopes)
    said: list[str] = []
    poller = AdminPoller(admin, tmp_path, said.append)
    note = (
        "source.admin.cluster is east, Pulsar's clusterName is standalone; publish rates of"
        " namespaces are read under standalone, and records keep east"
    )
    assert poller.check() == note
    found = [lines(poller.poll_once(AT + i)) for i in range(2)]
    assert said == [f"pulsar_admin east: {note}"]
    assert [
        json.loads(r["policy_json"])["limits"] for r in found[0] if r["event_type"] == "policy"
    ] == [{"publishRateInMsgs": 5}]
    assert {r["cluster"] for r in found[0]} == {"east"}
    assert AdminPoller(make_admin(policies=scopes), tmp_path / "b", said.append).check() is None


@pytest.mark.parametrize(
    ("precise", "is_noted"), [("false", True), (False, True), ("true", False), (None, False)]
)
def test_brokers_that_estimate_ages_are_noted_once(
    server: AdminServer,
    make_admin: MakeAdmin,
    topic: str,
    tmp_path: Path,
    precise: Any,
    is_noted: bool,
) -> None:
    runtime = {"preciseTimeBasedBacklogQuotaCheck": precise}
    server.answers["brokers/configuration/runtime"] = runtime
    said: list[str] = []
    poller = AdminPoller(make_admin(policies=["broker"]), tmp_path, said.append)
    note = (
        "age_s is -1 while the oldest message is in the open ledger, as at the brokers;"
        " preciseTimeBasedBacklogQuotaCheck=true in broker.conf gives its age"
    )
    assert poller.check() == (note if is_noted else None)
    for i in range(2):
        poller.poll_once(AT + i)
    assert said == ([f"pulsar_admin standalone: {note}"] if is_noted else [])


@pytest.mark.parametrize("answers", [True, False])
def test_a_poll_says_whether_anything_was_answered(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path, answers: bool
) -> None:
    if not answers:
        server.answers["persistent/public/n1"] = status(500)
    poller = AdminPoller(make_admin(timeout_ms=200), tmp_path)
    path = poller.poll_once(AT)
    assert path is not None
    last = json.loads(gzip.decompress(path.read_bytes()).splitlines()[-1])
    assert (last["event_type"], last["dropped"]) == ("poll", 0 if answers else None)
    assert poller.last.answered is answers and bool(last["problem"]) is not answers


def test_an_expired_token_ends_the_poll_and_changes_nothing(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path
) -> None:
    poller = AdminPoller(make_admin(), tmp_path)
    poller.poll_once(AT)
    server.answers[f"persistent/{NAME}/internalStats"] = status(401, {"reason": "expired"})
    with pytest.raises(UserError, match=r"source\.admin\.token"):
        poller.poll_once(AT + 1000)
    server.topic(NAME, internal=internal(), info=info(), stats=stats(publishers=[]))
    assert kinds(poller.poll_once(AT + 2000)) == ["producer_closed", *FULL[:4]]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"namespaces": ["public/nothing"]}, "namespace public/nothing: does not exist"),
        ({"url": "http://127.0.0.1:1"}, "Connection refused"),
        ({"policies": ["broker"]}, r"(?s)403.*source\.admin\.policies"),
    ],
)
def test_what_cannot_be_polled_is_refused_at_the_start(
    server: AdminServer,
    make_admin: MakeAdmin,
    topic: str,
    tmp_path: Path,
    keys: dict[str, Any],
    said: str,
) -> None:
    server.answers["brokers/configuration/runtime"] = status(403, {"reason": "no"})
    with pytest.raises(UserError, match=said) as error:
        AdminPoller(make_admin(**keys), tmp_path / "spool").check()
    assert len(str(error.value).splitlines()) == 2
    AdminPoller(make_admin(), tmp_path / "spool").check()
    server.answers[f"persistent/{NAME}/internalStats"] = status(403, {"reason": "no"})
    with pytest.raises(UserError, match="403"):
        AdminPoller(make_admin(), tmp_path / "spool").check()
    assert not (tmp_path / "spool").exists()


def test_only_one_process_polls_into_a_folder(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path
) -> None:
    first, second = AdminPoller(make_admin(), tmp_path), AdminPoller(make_admin(), tmp_path)
    first.poll_once(AT)
    with pytest.raises(UserError, match="another process polls"):
        second.poll_once(AT)
    first.close()
    assert kinds(second.poll_once(AT + 1)) == FULL[:4]


def test_old_files_go_but_not_all(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path
) -> None:
    poller = AdminPoller(make_admin(interval_ms=1000, keep_ms=3000), tmp_path)
    paths = [poller.poll_once(AT + i * 1000) for i in range(6)]
    names = [path.name for path in paths if path is not None]
    assert visible(poller.records) == names[2:]
    poller.close()
    # Nobody was there for a year: what is left may not have been read.
    poller = AdminPoller(make_admin(interval_ms=1000, keep_ms=3000), tmp_path)
    path = poller.poll_once(AT + 31_536_000_000)
    assert path is not None
    assert visible(poller.records) == [*names[4:], path.name]


@pytest.mark.parametrize("moment", ["records", "memory", "rename"])
def test_a_crash_while_a_poll_is_written(
    make_admin: MakeAdmin,
    server: AdminServer,
    topic: str,
    tmp_path: Path,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poller = AdminPoller(make_admin(), tmp_path)
    first = poller.poll_once(AT)
    server.topic(NAME, internal=internal(), info=info(), stats=stats(publishers=[]))

    class Crash(BaseException):
        pass

    def crash(*_: Any) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        if moment == "rename":
            replace = Path.replace
            patched.setattr(
                Path,
                "replace",
                lambda p, to: replace(p, to) if p.name.startswith(".memory") else crash(),
            )
        else:
            owner, step = {"records": (spool, "_flush"), "memory": (Spool, "_write_memory")}[moment]
            patched.setattr(owner, step, crash)
        with pytest.raises(Crash):
            poller.poll_once(AT + 1000)
    assert [*poller.records.iterdir()] == [first]
    again = AdminPoller(make_admin(), tmp_path)
    last = again.poll_once(AT + 2000)
    told = [r for path in sorted(again.records.iterdir()) for r in lines(path)]
    assert [r["event_type"] for r in told].count("producer_closed") == 1
    last_of = [lines(path)[-1]["seq"] + 1 for path in sorted(again.records.iterdir())]  # the poll's
    assert sorted([*(r["seq"] for r in told), *last_of]) == list(range(len(told) + len(last_of)))
    assert len(visible(again.records)) == (3 if moment == "rename" else 2)
    assert last is not None and lines(last)
    assert visible(tmp_path) == ["lock", "memory.json", "polls"]


def test_a_full_disk_is_a_clear_error_and_the_next_poll_goes_on(
    make_admin: MakeAdmin,
    server: AdminServer,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poller = AdminPoller(make_admin(), tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(UserError, match=r"source\.admin\.spool: .*No space left"):
            poller.poll_once(AT)
    assert kinds(poller.poll_once(AT + 1000)) == FULL


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 2}', "\x00"])
def test_a_memory_that_is_none_is_refused(
    make_admin: MakeAdmin, server: AdminServer, topic: str, tmp_path: Path, text: str
) -> None:
    (tmp_path / "memory.json").write_text(text)
    with pytest.raises(UserError, match="is not the memory of a poll"):
        AdminPoller(make_admin(), tmp_path).poll_once(AT)


def test_a_folder_belongs_to_one_cluster(
    make_admin: MakeAdmin, server: AdminServer, topic: str, tmp_path: Path
) -> None:
    poller = AdminPoller(make_admin(), tmp_path)
    poller.poll_once(AT)
    poller.close()
    with pytest.raises(UserError, match=r"source\.admin\.cluster: .* is of cluster standalone"):
        AdminPoller(make_admin(cluster="other"), tmp_path).poll_once(AT)


def test_the_memory_is_json() -> None:
    document: Document[PollMemory[PolledTopic]] = Document(PollMemory[PolledTopic])
    memory = PollMemory(
        "c", 4, 5, "f", {"t": PolledTopic("b", (1,))}, {"broker *": {"numIOThreads": 2}}
    )
    assert document.of_text(document.text(memory)) == memory


@pytest.fixture
def running(
    make_admin: MakeAdmin, server: AdminServer, topic: str, tmp_path: Path
) -> Iterator[Any]:
    """Starts a poller in a thread; answers it, its words and what stops it."""
    stop = threading.Event()
    threads = []

    def start(**keys: Any) -> tuple[AdminPoller, list[str], threading.Event]:
        said: list[str] = []
        poller = AdminPoller(make_admin(**keys), tmp_path, said.append)
        threads.append(threading.Thread(target=poller.run, args=(stop,)))
        threads[-1].start()
        return poller, said, stop

    yield start
    stop.set()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def times(poller: AdminPoller) -> list[int]:
    found = visible(poller.records) if poller.records.is_dir() else []
    return [int(name.split("-")[1]) for name in found]


def test_polling_goes_on_after_failures(running: Any, server: AdminServer) -> None:
    server.answers["persistent/public/n1"] = in_turn(
        status(401, {"reason": "expired"}), status(500), status(500), [TOPIC]
    )
    poller, said, stop = running(interval_ms=100)
    wait_for(lambda: len(times(poller)) > 3)  # each poll has a file
    stop.set()
    assert "source.admin.token" in said[0]
    assert "namespace public/n1" in said[1]
    refused = "pulsar_admin standalone: ended: not polled: source.admin.token: Pulsar refuses"
    assert said[2:] == [text for text in said[2:] if text.startswith(refused)][:1]


def test_a_second_poller_waits_until_the_first_is_gone(
    running: Any, make_admin: MakeAdmin, topic: str, tmp_path: Path
) -> None:
    first = AdminPoller(make_admin(), tmp_path)
    first.poll_once(AT)
    poller, said, stop = running(interval_ms=50)
    wait_for(lambda: said)
    time.sleep(0.4)  # said once, however often it is tried
    assert len(said) == 1 and "another process polls" in said[0]
    first.close()
    wait_for(lambda: len(times(poller)) > 1)
    stop.set()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"cluster": ""}, "cluster: is missing"),
        ({"token": "a", "token_file": "b"}, "token: excludes token_file"),
        ({"namespaces": [], "topics": []}, "namespaces: is empty"),
        ({"namespaces": ["public"]}, "not tenant/namespace"),
        ({"topics": ["t"]}, "is not "),
        ({"topics": ["non-persistent://a/b/c"]}, "has no ledgers"),
        ({"url": "pulsar://host:6650"}, "is not http"),
        ({"url": "http://user:pw@host"}, "is not http"),
        ({"policies": ["user"]}, "policies"),
        ({"interval_ms": 0}, "interval_ms"),
    ],
)
def test_settings_that_are_refused(make_admin: MakeAdmin, keys: Json, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_admin(**keys)


def test_a_token_is_never_shown() -> None:
    plain = PulsarAdminSettings(cluster="c", token="abcdef")
    assert "abcdef" not in repr(plain) + str(plain.display())
    named = PulsarAdminSettings(cluster="c", token="${env:T}")
    assert named.display()["token"] == "${env:T}"


def test_producers_that_come_and_go(
    server: AdminServer, make_admin: MakeAdmin, topic: str, tmp_path: Path
) -> None:
    poller = AdminPoller(make_admin(), tmp_path)
    poller.poll_once(AT)
    server.topic(
        NAME,
        internal=internal(),
        info=info(),
        stats=stats(publishers=[publisher("/10.0.0.2:1", 3, "q")]),
    )
    told = [
        (r["event_type"], r["cnx_id"], r["producer_id"], r["producer_name"])
        for r in lines(poller.poll_once(AT + 1000))
        if r["event_type"].startswith("producer")
    ]
    assert told == [
        ("producer_closed", "/10.0.0.1:500", 0, "p"),
        ("producer_created", "/10.0.0.2:1", 3, "q"),
    ]
