"""Owners of producer ids: request logs that are still written, rules and ACLs."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from app.config.kafka_producers import OwnerRule
from app.sources.kafka import producer_owners
from app.sources.kafka.producer_owners import ANONYMOUS, Grant, OwnersOf, RequestLogs
from app.sources.kafka.producer_states import IdOwner
from tests.support.broker_log_lines import completed, header


def line(producer_id: int, user: str, client: str = "app", at: str = "10:00:00,000") -> bytes:
    return (
        completed(
            producer_id,
            f"[2026-11-21 {at}] DEBUG ",
            principal=f"User:{user}",
            requestHeader=header(clientId=client),
        )
        + b"\n"
    )


def read(logs: RequestLogs) -> list[str]:
    problems: list[str] = []
    logs.read(problems)
    return problems


def test_a_log_is_read_on_while_it_grows_and_is_rotated(tmp_path: Path) -> None:
    file = tmp_path / "kafka-request.log"
    file.write_bytes(line(1, "alice") + line(2, "bob")[:40])
    logs = RequestLogs(str(tmp_path / "kafka-request.log*"), "UTC")
    assert read(logs) == []
    assert (logs.owner(1), logs.owner(2)) == (IdOwner("User:alice", "app"), None)
    with file.open("ab") as more:
        more.write(line(2, "bob")[40:])
    file.rename(tmp_path / "kafka-request.log.1")
    file.write_bytes(line(3, "carol"))
    assert read(logs) == []
    assert [logs.owner(n) for n in (1, 2, 3)] == [
        IdOwner(f"User:{user}", "app") for user in ("alice", "bob", "carol")
    ]
    packed = tmp_path / "kafka-request.log.2.gz"
    packed.write_bytes(gzip.compress(line(4, "dave")))
    file.write_bytes(b"")
    read(logs)
    file.write_bytes(line(5, "erin"))
    assert read(logs) == []
    assert [owner and owner.principal for owner in map(logs.owner, (4, 5))] == [
        "User:dave",
        "User:erin",
    ]


def test_the_newest_assignment_holds_whatever_the_order_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(line(1, "new", at="12:00:00,000"))
    (tmp_path / "b").write_bytes(line(1, "old", at="11:00:00,000"))
    (tmp_path / ".hidden").write_bytes(line(2, "nobody"))
    logs = RequestLogs(str(tmp_path), "UTC")
    assert read(logs) == []
    assert (logs.owner(1), logs.owner(2)) == (IdOwner("User:new", "app"), None)


def test_a_path_without_files_and_lines_of_other_kinds(tmp_path: Path) -> None:
    logs = RequestLogs(str(tmp_path / "none" / "*.log"), "UTC")
    assert read(logs) == [f"request log {tmp_path}/none/*.log: no file"]
    (tmp_path / "x.log").write_bytes(b"\xff\xfe nothing\n" + line(1, "a").replace(b"{", b"["))
    other = RequestLogs(str(tmp_path / "x.log"), "UTC")
    assert read(other) == []
    assert other.owner(1) is None


RULES = [
    OwnerRule(client_id="^loader-.*", principal="User:loading"),
    OwnerRule(topic="orders", client_id="shop", principal="User:shop"),
    OwnerRule(topic="^billing-.*", principal="User:billing"),
]
GRANTS = [
    Grant("orders", "LITERAL", "User:one", "WRITE"),
    Grant("pay", "PREFIXED", "User:two", "ALL"),
    Grant("payments", "LITERAL", "User:three", "WRITE"),
    Grant("open", "LITERAL", "User:*", "WRITE"),
]


@pytest.mark.parametrize(
    ("logged", "topic", "owner"),
    [
        (("alice", "loader-7"), "orders", ("User:alice", "loader-7")),
        ((None, None), "billing-1", ("User:billing", None)),
        ((None, None), "orders", ("User:one", None)),
        ((None, None), "payouts", ("User:two", None)),
        ((None, None), "payments", ("unknown", None)),
        ((None, None), "open", ("unknown", None)),
        ((None, None), "else", ("unknown", None)),
        (("ANONYMOUS", "loader-7"), "else", ("User:loading", "loader-7")),
        (("ANONYMOUS", "shop"), "orders", ("User:shop", "shop")),
        (("ANONYMOUS", "other"), "orders", ("User:one", "other")),
        (("ANONYMOUS", "other"), "else", (ANONYMOUS, "other")),
    ],
)
def test_the_order_of_owners(
    tmp_path: Path, logged: tuple[str | None, str], topic: str, owner: tuple[str, str | None]
) -> None:
    user, client = logged
    (tmp_path / "log").write_bytes(b"" if user is None else line(1, user, client))
    logs = RequestLogs(str(tmp_path / "log"), "UTC")
    read(logs)
    assert OwnersOf(RULES, logs, GRANTS).of(1, topic) == IdOwner(*owner)


def test_without_a_request_log_rules_of_clients_fit_nobody() -> None:
    owners = OwnersOf(RULES)
    assert owners.of(1, "orders") == IdOwner()
    assert owners.of(1, "billing-1").principal == "User:billing"


def test_a_damaged_file_or_a_line_without_an_end_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = bytearray(gzip.compress(line(1, "alice") * 500))
    packed[len(packed) // 2 :] = b"\xff" * 40
    (tmp_path / "a.log.gz").write_bytes(packed)
    monkeypatch.setattr(producer_owners, "BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr(producer_owners, "MOST_OF_LINE", 1 << 12)
    strange = "".join(chr(c) for c in (0x0B, 0x0C, 0x1C, 0x85, 0x2028, 0x0D)).encode()
    (tmp_path / "b.log").write_bytes(b"x" * (1 << 22) + b"\n" + line(2, "bob"))
    (tmp_path / "c.log").write_bytes(strange + b"\n" + line(3, "carol") + b"\xff\xfe\n")
    tracemalloc.start()
    assert read(RequestLogs(str(tmp_path / "b.log"), "UTC")) == []
    assert tracemalloc.get_traced_memory()[1] < 1 << 21
    tracemalloc.stop()
    logs = RequestLogs(str(tmp_path / "*"), "UTC")
    problems = read(logs)
    (problem,) = problems
    assert problem.startswith(f"request log {tmp_path / 'a.log.gz'}: ")
    assert [logs.owner(n) for n in (2, 3)] == [
        IdOwner(f"User:{u}", "app") for u in ("bob", "carol")
    ]
