"""When policies take force: the worked examples of `play`, `mono_shard` and `wall_policies`."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from state.engine import broker_changes
from state.engine.clocks import Moment
from state.engine.documents import Configured, Policy, Version, policy_of
from state.engine.kernel import NULL
from state.engine.key import Key
from state.engine.names import NONE, Names
from state.engine.play import play
from state.engine.records import Records
from state.engine.wall_policies import BEGINNING
from state.events import KIND_INDEX
from state.producer_ids.shared import POLICIES
from state.rate_limits.shard import Brokers

MS = 1_000_000
PUBLISH, POLICY = KIND_INDEX["publish"], KIND_INDEX["policy"]
STARTED = KIND_INDEX["broker_started"]


def column(*values: int | None) -> np.ndarray:
    return np.array([NULL if value is None else value for value in values], np.int64)


# -- play ------------------------------------------------------------------------------------


class World(NamedTuple):
    key: np.ndarray


class Told(Key):
    """A key that writes down what it is told to do, in ms of its monotonic clock."""

    def __init__(self) -> None:
        fields = ("cluster", "any", "has_clock", "clock_ns", "clock_wall_ms")
        names = (*fields, "last_ns", "last_wall_ms")
        self.world = World(np.zeros(1, [(name, "<i8") for name in names]))
        self.key["clock_ns"] = self.key["clock_wall_ms"] = self.key["last_wall_ms"] = NULL
        self.names, self.documents, self.applied = Names(), {}, set()
        self.told: list[tuple[str, int]] = []

    def feed(self, rows: Records) -> Any:
        return SimpleNamespace(
            mono=rows["ts_mono_ns"], wall=rows["ts_wall_ms"], kind=rows["event_type"]
        )

    def judge(
        self, f: Any, start: int, end: int, rows: Records, policies: dict[int, Policy]
    ) -> None:
        for i in range(start, end):
            self.key["any"], self.key["last_ns"], self.key["last_wall_ms"] = 1, f.mono[i], f.wall[i]
            self.told.append(("record", int(f.mono[i]) // MS))

    def advance(self, clock: int, next_mono: int | None, next_wall: int) -> None:
        return None

    def apply(self, policy: Policy, now: int, wall: int) -> None:
        self.told.append((policy.name, now // MS))


def played(
    key: Told, mono_ms: list[int], walls: list[int | None], due_ms: int
) -> tuple[list[tuple[str, int]], int]:
    """What a key does in a batch up to its clock at 200, and how many policies wait."""
    key.told = []
    n = len(walls)
    text = key.names.intern_one(json.dumps({"scope": "broker", "name": "policy", "limits": {}}))
    records = Records.of(
        {
            "event_type": column(*[PUBLISH] * n, POLICY),
            "ts_mono_ns": column(*[ms * MS for ms in mono_ms], None),
            "ts_wall_ms": column(*walls, due_ms),
            "policy_json": column(*[NONE] * n, text),
        }
    )
    s: Any = SimpleNamespace(names=key.names, stars=[])
    floating = np.array([n])
    clock = Moment(0, 200 * MS)
    left = play(s, key, records, np.arange(n), clock, None, int(NULL), floating)
    return key.told, len(left)


A, B = ("record", 100), ("record", 160)


@pytest.mark.parametrize(
    ("due_ms", "first_wall", "told"),
    [
        (1030, 1000, [A, ("policy", 130), B]),
        (1060, 1000, [A, ("policy", 160), B]),
        (1080, 1000, [A, B, ("policy", 180)]),
        (1110, 1000, [A, B]),
        (990, 1000, [("policy", 100), A, B]),
        (1030, None, [A, ("policy", 160), B]),
    ],
)
def test_a_policy_of_a_wall_time_takes_force_between_the_records(
    due_ms: int, first_wall: int | None, told: list[tuple[str, int]]
) -> None:
    assert played(Told(), [100, 160], [first_wall, 1060], due_ms) == (told, len(told) == 2)


def test_a_policy_behind_the_clock_takes_force_at_the_clock() -> None:
    key = Told()
    played(key, [100, 160], [1000, 1060], 1110)
    assert played(key, [], [], 990) == ([("policy", 200)], 0)


# -- mono_shard ------------------------------------------------------------------------------

X, Y = ("topic", "persistent://t/ns/x"), ("topic", "persistent://t/ns/y")


def limit(source: tuple[str, str], rate: int) -> str:
    scope, name = source
    return json.dumps({"scope": scope, "name": name, "limits": {"publishRateInMsgs": rate}})


def rates(documents: dict[tuple[str, str], Policy]) -> dict[tuple[str, str], int]:
    return {source: policy.limits["publishRateInMsgs"] for source, policy in documents.items()}


def test_a_stored_key_keeps_its_documents_and_a_new_one_begins_with_the_configured() -> None:
    last = Brokers([limit(X, 10)], 0)
    pair = last.names.intern_one("c"), last.names.intern_one("b1")
    key = last.open(pair)
    key.documents[Y] = policy_of(last.names, last.names.intern_one(limit(Y, 5)), 2000)
    last.keys[pair] = key
    configured = Configured([limit(X, 20)]).followed_by([Version(1, 5000, {X: limit(X, 30)})])
    s = Brokers(configured, 0, data=last.write())
    (b1,) = s.keys
    assert rates(s.open(b1).documents) == {X: 10, Y: 5}
    assert s.changed == {X: limit(X, 20)}
    b2 = b1[0], s.names.intern_one("b2")
    assert rates(s.open(b2).documents) == {X: 20}
    (star,) = s.stars
    assert (star.cluster, star.policy.wall_ms) == (NONE, 5000)
    assert rates({star.policy.source: star.policy}) == {X: 30}


# -- wall_policies ---------------------------------------------------------------------------


def samples(broker: str, count: int) -> str:
    limits = {"producer.id.quota.window.num": count}
    return json.dumps({"scope": "broker", "name": broker, "limits": limits})


def test_turns_of_two_brokers() -> None:
    names = Names()
    name: Callable[[str], int] = names.intern_one
    every, b1, b2 = name("*"), name("b1"), name("b2")
    texts = [name(samples("*", 5)), name(samples("b1", 7)), name(samples("*", 6))]
    records = Records.of(
        {
            "event_type": column(POLICY, POLICY, POLICY, STARTED),
            "policy_json": column(*texts, NONE),
            "ts_wall_ms": column(1000, 2000, 3000, 4000),
            "cluster": column(*[name("c")] * 4),
            "broker": column(every, b1, every, b1),
        }
    )
    meaning = POLICIES.meanings(records, names)
    places = np.array([[name("c"), b1, 0], [name("c"), b2, 0]])
    found, begin = POLICIES.turns(records, meaning, places, names, (11, 1, 1, 1))
    told = [
        [tuple(t[["rank", "at_ms", "start", "samples"]].tolist()) for t in found[start:end]]
        for start, end in pairwise(begin.tolist())
    ]
    first = (BEGINNING, NULL, broker_changes.SETTINGS, 11)
    assert told == [
        [
            first,
            (0, 1000, broker_changes.SETTINGS, 5),
            (1, 2000, broker_changes.SETTINGS, 7),
            (3, 4000, broker_changes.STARTS, 7),
        ],
        [first, (0, 1000, broker_changes.SETTINGS, 5), (2, 3000, broker_changes.SETTINGS, 6)],
    ]
    # what holds for a record: the last turn below the rank of its time
    times = records["ts_wall_ms"]
    held = []
    for at_ms in (2000, 2001):
        rank = broker_changes.rank_at(times, np.int64(at_ms))
        turn = broker_changes.turn_after(found, begin, np.int64(0), rank)
        held.append(int(found[turn - 1]["samples"]))
    assert held == [5, 7]
