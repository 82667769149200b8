"""The named incidents: one function per kind, each adds to the plan.

A client whose connection is paused cannot publish, so an incident is a series of bursts with the
pause between them: after a burst of f seconds' worth of a limit the balance is 1 - f seconds below
zero, and the pause lasts until one per cent of the capacity is there again.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from benchmarks.generator.fleet import Fleet
from benchmarks.generator.limits import Policy, PublishLimits
from benchmarks.generator.plan import MS, SECOND, IncidentPlan
from benchmarks.generator.scenario import IncidentSpec
from benchmarks.generator.streams import CONTRACT, FLEET_WIDE, stream_of
from benchmarks.generator.trace_rows import make_rows

TARGET = 0.01
"""Part of the capacity that ends a pause."""
SLACK = 60 * MS
"""Later than in the model: resolution of the bucket and the client's wake-up."""
OWN_SHARE = 0.02
"""Seconds of a topic's limit that its own client publishes while another one has used it up."""
FRAMES = 4
"""Publish requests of a burst, already on the way when the first one breaks the limit."""


def plan_incidents(fleet: Fleet, limits: PublishLimits) -> IncidentPlan:
    """Every incident of the fleet's scenario."""
    plan = IncidentPlan()
    for spec in fleet.scenario.incidents:
        INCIDENTS[spec.name](fleet, limits, spec, plan)
    return plan


def _burst(
    fleet: Fleet,
    limits: PublishLimits,
    plan: IncidentPlan,
    at: int,
    producer: int,
    factor: float,
    allowed: float = 1.0,
    frames: int = FRAMES,
) -> int:
    """Publishes `factor` seconds of the limit of a producer's topic at once; the end of the pause,
    if any (ns). A topic's main producer has the topic's number.

    `allowed` is the limit in force as a share of the topic's usual one.
    """
    topic = int(fleet.producers.topic[producer])
    for i in range(frames):
        size = limits.size(fleet, topic, factor / frames)
        plan.publish(at + i * 2 * MS, producer, size)
    if factor <= allowed:
        return at
    pause = (factor / allowed - 1 + TARGET) * SECOND
    until = at + frames * 2 * MS + int(pause) + SLACK
    plan.holds.append((int(fleet.producers.connection[producer]), at + 1, until))
    return until


def noisy_neighbour(
    fleet: Fleet, limits: PublishLimits, spec: IncidentSpec, plan: IncidentPlan
) -> None:
    """One topic breaks its limit again and again on a connection that it shares."""
    topic = fleet.topic_on(spec.broker, spec.topic)
    start, until = int(spec.at_s * SECOND), 0
    for i in range(spec.times):
        at = start + int(i * spec.every_s * SECOND)
        until = _burst(fleet, limits, plan, at, topic, 1 + spec.pause_s)
    # Its bucket must be full again at each burst, or the next pause is longer than planned.
    plan.mutes.append((topic, start - 2 * SECOND, until + SECOND))


def burst(fleet: Fleet, limits: PublishLimits, spec: IncidentSpec, plan: IncidentPlan) -> None:
    """One batch far over a topic's limit: the balance goes deep below zero."""
    topic = fleet.topic_on(spec.broker, spec.topic)
    at = int(spec.at_s * SECOND)
    until = _burst(fleet, limits, plan, at, topic, float(spec.factor), frames=1)
    plan.mutes.append((topic, at - 2 * SECOND, until + SECOND))


def shared_topic(
    fleet: Fleet, limits: PublishLimits, spec: IncidentSpec, plan: IncidentPlan
) -> None:
    """A client of another principal uses up a topic's limit, and the topic's own client waits, too."""
    topic = fleet.topic_on(spec.broker, spec.topic)
    producers = np.flatnonzero(fleet.producers.topic == topic).tolist()
    own, other = (int(fleet.producers.connection[p]) for p in producers)
    start, until, late = int(spec.at_s * SECOND), 0, FRAMES * 2 * MS
    # What the topic's own client sends before it is paused is paid back as well.
    sent = limits.size(fleet, topic, OWN_SHARE)
    for i in range(spec.times):
        at = start + int(i * spec.every_s * SECOND)
        until = _burst(fleet, limits, plan, at, producers[1], 1 + spec.pause_s)
        plan.publish(at + late, topic, sent)
        until += int(2 * OWN_SHARE * SECOND)
        plan.holds += [(own, at + late + 1, until), (other, at + 1, until)]
    plan.mutes.append((topic, start - 2 * SECOND, until + SECOND))


def policy_change(
    fleet: Fleet, limits: PublishLimits, spec: IncidentSpec, plan: IncidentPlan
) -> None:
    """The same bursts before, during and after a lower limit: only those during it break it."""
    lower, factor = 0.4, 0.85
    topic = fleet.topic_on(spec.broker, spec.topic)
    space = fleet.topics.namespaces[topic]
    start, until = int(spec.at_s * SECOND), int((spec.at_s + spec.for_s) * SECOND)
    every = int(spec.every_s * SECOND)
    usual = limits.policy("namespace", space)
    lowered = {
        k: int(v * lower) if k.startswith("publish") else v for k, v in usual["limits"].items()
    }
    if spec.scope == "namespace":
        before, after = {**usual, "limits": lowered}, usual
    else:
        name = f"{space}/{fleet.topics.names[topic].rsplit('/', 1)[1].split('-partition-')[0]}"
        rates = {k: v for k, v in lowered.items() if k.startswith("publish")}
        before = {"scope": "topic", "name": name, "limits": rates}
        after = {**before, "limits": {}}
    broker = spec.broker if spec.scope == "topic" else FLEET_WIDE
    plan.rows += [_policy(fleet, start, broker, before), _policy(fleet, until, broker, after)]
    for at in range(start - 4 * every + every // 2, until + 4 * every, every):
        allowed = lower if start <= at < until else 1.0
        _burst(fleet, limits, plan, at, topic, factor, allowed)
    plan.mutes.append((topic, start - 5 * every, until + 5 * every))


def _policy(fleet: Fleet, at: int, broker: int, document: Policy) -> np.ndarray:
    """A `policy` record: of one broker with both clocks, or of the fleet as a poll saw it."""
    texts = fleet.texts
    return make_rows(
        1,
        event_type=texts.add("policy"),
        stream=stream_of(fleet, CONTRACT, broker),
        at_ns=at,
        policy_json=texts.add(json.dumps(document, separators=(",", ":"))),
        fixed=1,
    )


def connection_limit(
    fleet: Fleet, limits: PublishLimits, spec: IncidentSpec, plan: IncidentPlan
) -> None:
    """A slow bookie: no entry is stored until the connection has `factor` requests in flight."""
    connection = fleet.connection_on(spec.broker, spec.connection)
    own = np.flatnonzero(fleet.producers.connection == connection)
    start, full = int(spec.at_s * SECOND), int((spec.at_s + spec.for_s) * SECOND)
    step = (full - start) // spec.factor
    stored = full + SECOND  # the bookie answers again, one entry every 4 ms
    for i in range(spec.factor + FRAMES):
        at = start + (i + 1) * step
        size = int(fleet.topics.message_bytes[fleet.producers.topic[own[i % own.size]]])
        plan.publish(at, int(own[i % own.size]), (1, size), stored + i * 4 * MS - at)
    until = stored + (spec.factor + FRAMES) * 4 * MS
    plan.holds.append((connection, start - SECOND // 2, until))


def _together(
    fleet: Fleet,
    limits: PublishLimits,
    spec: IncidentSpec,
    plan: IncidentPlan,
    members: np.ndarray,
    limit: int,
) -> None:
    """Topics that stay below their own limits but break a common one."""
    factor = 1.6
    own = np.where(
        limits.messages > 0, limits.messages, limits.bytes // fleet.topics.message_bytes
    )[members]
    share = min(0.8, factor * limit / own.sum())
    connections = np.unique(fleet.producers.connection[members])
    for i in range(spec.times):
        at = int((spec.at_s + i * spec.every_s) * SECOND)
        for k, topic in enumerate(members):
            plan.publish(at + k * MS // 2, int(topic), limits.size(fleet, int(topic), share))
        pause = share * own.sum() / limit - 1 + TARGET
        until = at + members.size * MS // 2 + int(pause * SECOND) + SLACK
        all_sent = at + members.size * MS // 2
        plan.mutes += [(int(t), at - SECOND, all_sent) for t in members]  # the bucket is full
        plan.holds += [(int(c), all_sent, until) for c in connections]


def resource_group(
    fleet: Fleet, limits: PublishLimits, spec: IncidentSpec, plan: IncidentPlan
) -> None:
    """The topics of a group are each within their limits, but together over the group's."""
    group = spec.group or next(iter(limits.groups))
    spaces = fleet.scenario.limits.resource_groups[group]
    inside = np.array([s in spaces for s in fleet.topics.namespaces])
    members = np.flatnonzero(inside & (fleet.topics.broker == spec.broker))
    _together(fleet, limits, spec, plan, members, limits.groups[group])


def broker_limit(
    fleet: Fleet, limits: PublishLimits, spec: IncidentSpec, plan: IncidentPlan
) -> None:
    """The topics of a broker are each within their limits, but together over the broker's."""
    grouped = {s for spaces in fleet.scenario.limits.resource_groups.values() for s in spaces}
    free = np.array([s not in grouped for s in fleet.topics.namespaces])
    members = np.flatnonzero(free & (fleet.topics.broker == spec.broker))
    _together(fleet, limits, spec, plan, members, limits.brokers[spec.broker])


def broker_restart(
    fleet: Fleet, limits: PublishLimits, spec: IncidentSpec, plan: IncidentPlan
) -> None:
    """A broker's host reboots: its monotonic clock starts anew, its clients come back."""
    down, up = int(spec.at_s * SECOND), int((spec.at_s + spec.for_s) * SECOND)
    fleet.restarts_ns[spec.broker] = up
    plan.down.append((spec.broker, down, up))
    for connection in np.flatnonzero(fleet.connections.broker == spec.broker):
        fleet.connections.reopens_ns[connection] = up
        plan.holds.append((int(connection), down - SECOND // 5, up + SECOND))


def reconnect(fleet: Fleet, limits: PublishLimits, spec: IncidentSpec, plan: IncidentPlan) -> None:
    """A client closes its connection and opens another one."""
    connection = fleet.connection_on(spec.broker, spec.connection)
    closes, opens = int(spec.at_s * SECOND), int((spec.at_s + spec.for_s) * SECOND)
    fleet.connections.reopens_ns[connection] = opens
    plan.holds.append((connection, closes - SECOND // 5, opens + SECOND))


INCIDENTS: dict[str, Callable[[Fleet, PublishLimits, IncidentSpec, IncidentPlan], None]] = {
    "noisy-neighbour": noisy_neighbour,
    "burst": burst,
    "policy-change": policy_change,
    "shared-topic": shared_topic,
    "connection-limit": connection_limit,
    "resource-group": resource_group,
    "broker-limit": broker_limit,
    "broker-restart": broker_restart,
    "reconnect": reconnect,
}
