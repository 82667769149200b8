"""Limits in force, as polls of the cluster have them, against the policies of the configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from app.config.policy_files import WrittenDocument
from app.show.policy.limits_in_force import limits_by_cluster
from app.show.policy.policy_changes_text import changes
from app.show.reconcile.recorded_numbers import EVERY_BROKER, RecordedSide, Until
from app.show.reconcile.spans import Row
from state.engine.documents import USER_CLIENT, Source, pair_of
from state.policies import CLIENT_QUOTAS

FEED = "kafka_quotas"
IN_MILLI = ("request_percentage", "controller_mutation_rate")
"""Limits that often are no whole numbers: their rows have thousandths."""
LARGEST = 2**63 - 1
_KINDS = {"user": "users", "client": "clients", USER_CLIENT: "clients_of_users"}
Limits = dict[Source, WrittenDocument]


def compare_limits(side: RecordedSide) -> tuple[list[Row], Until]:
    """A row for each limit that the configuration names, and one for each kind of those that only
    the cluster has."""
    written = [
        WrittenDocument("", f"policies[{number}]", policy.model_dump())
        for number, policy in enumerate(side.settings.policies)
    ]
    named = _by_source(written)
    if not named:
        return [], {}
    rows: list[Row] = []
    until: Until = {}
    for cluster, polled in limits_by_cluster(side.warehouse, feed=FEED).items():
        place = f"limits of {cluster}"
        since = side.until.get(place, side.now_ms)
        until[place] = side.now_ms
        about = {
            "cluster": cluster,
            "broker": EVERY_BROKER,
            "window_start_ms": since,
            "window_ms": max(side.now_ms - since, 0),
        }
        here = _by_source(polled)
        rows += [{**about, **row} for row in (*_each(named, here), *_of_no_file(named, here))]
    return rows, until


def _by_source(documents: Iterable[WrittenDocument]) -> Limits:
    """The documents that have limits of clients, with these alone."""
    found = {}
    for one in documents:
        limits = {key: v for key, v in one.document["limits"].items() if key in CLIENT_QUOTAS}
        if limits:
            document = {**one.document, "limits": limits}
            found[one.source] = WrittenDocument(one.file, one.key, document)
    return found


def _each(named: Limits, here: Limits) -> Iterator[Row]:
    """A row for each limit that is named; the cluster has 0 where it has none."""
    for source, one in named.items():
        beside = [here[source]] if source in here else []
        apart = {each.limit: each.after for each in changes([one], beside)}
        for key, limit in one.document["limits"].items():
            user, client = _entity(source)
            yield {
                "user": user,
                "client": client,
                "measure": f"{key}_milli" if key in IN_MILLI else key,
                "broker_value": _whole(key, apart.get(key, limit)),
                "weir_value": _whole(key, limit),
            }


def _of_no_file(named: Limits, here: Limits) -> Iterator[Row]:
    """A row for each kind of entity and limit that is named, where the cluster has more of them."""
    counts = [
        Counter((source[0], key) for source, one in every.items() for key in one.document["limits"])
        for every in (named, here)
    ]
    both = Counter(
        (source[0], key)
        for source, one in named.items()
        if source in here
        for key in one.document["limits"].keys() & here[source].document["limits"].keys()
    )
    for scope, key in counts[0]:
        if counts[1][scope, key] > both[scope, key]:
            yield {
                "user": "",
                "client": "",
                "measure": f"{key}_of_{_KINDS[scope]}",
                "broker_value": counts[1][scope, key],
                "weir_value": both[scope, key],
                "reason": "NOT_IN_FILES",
            }


def _entity(source: Source) -> tuple[str, str]:
    """User and client id of an entity; empty for the one that it has not."""
    scope, name = source
    if scope == USER_CLIENT:
        return pair_of(name)
    return (name, "") if scope == "user" else ("", name)


def _whole(key: str, limit: float | None) -> int:
    if limit is None:
        return 0
    return min(round(limit * 1000 if key in IN_MILLI else limit), LARGEST)
