"""The limits of a topic, principal or client: each limit, the document that sets it and those that it
overrides.

The rules are the broker's. The publish rates of a topic come from one level: topic over namespace
over broker. Each type of backlog quota comes from the first level that has it. Within a level the
documents of the configuration are merged key by key, until the stream brings one for the name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.config.levels import for_many
from app.config.policy_files import WrittenDocument
from app.show.policy.overridden import PER_TOPIC, PUBLISH
from state.engine.documents import USER_CLIENT, Source, full_topic_name, name_of, pair_of
from state.engine.globs import DEFAULT_USER, matching
from state.policies import LIMIT_TYPES, QUOTA_TYPES
from udfs.topics import split_partition, split_topic

if TYPE_CHECKING:
    from app.read.last_policies import LastPolicy

QUOTA_DEFAULTS = {
    "destination_storage": ("backlogQuotaDefaultLimitGB", "backlogQuotaDefaultLimitBytes"),
    "message_age": ("backlogQuotaDefaultLimitSecond",),
}


@dataclass(frozen=True)
class Said:
    """A limit that a document sets."""

    value: Any
    document: str
    where: str
    """File and line, or the place in the archive."""

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {"value": self.value, "document": self.document, "where": self.where}


@dataclass
class Held:
    """A limit in force, and the limits that it overrides; None if no document sets it."""

    limit: str
    said: list[Said] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        first, *rest = [one.plain() for one in self.said]
        return {"limit": self.limit, **first, "overrides": rest}


class Levels:
    """The documents of a configuration and the last ones of the stream."""

    def __init__(
        self, found: Sequence[WrittenDocument], stream: Mapping[Source, LastPolicy]
    ) -> None:
        self._own = {one.source: one for one in found}
        self._many = for_many([one.document for one in found])
        self._stream = stream

    def topic(self, name: str) -> list[Held]:
        """The limits of a topic; of brokers only the limits for all of them."""
        full = split_partition(full_topic_name(name))[0]
        parts = split_topic(full)
        namespace = f"{parts.tenant}/{parts.namespace}" if parts and "/" in name else None
        levels = [self._level("topic", full)]
        levels += [self._level("namespace", namespace)] if namespace else []
        broker = self._level("broker", "*")
        found = list(self._rates(levels, broker))
        group = Held("resource_group", levels[1].get("resource_group", []) if namespace else [])
        found += [group]
        if group.said:
            of_group = self._level("resource_group", str(group.said[0].value))
            found += [Held(f"resource_group.{key}", of_group.get(key, [])) for key in PUBLISH]
        for kind in QUOTA_TYPES:
            said = [one for level in levels for one in level.get(f"backlog_quota.{kind}", [])]
            said += [one for key in QUOTA_DEFAULTS[kind] for one in broker.get(key, [])]
            found.append(Held(f"backlog_quota.{kind}", said))
        return [held for held in found if held.said]

    def principal(self, name: str) -> list[Held]:
        """The limits of a user, those with single clients last."""
        users = (name.split(":", 1)[-1], DEFAULT_USER)
        levels = [self._level("user", user) for user in users]
        found = [
            Held(key, [one for level in levels for one in level.get(key, [])])
            for key in LIMIT_TYPES["user"]
        ]
        for scope, pair in dict.fromkeys([*self._own, *self._stream]):
            if scope == USER_CLIENT and pair_of(pair)[0] in users:
                client = pair_of(pair)[1]
                level = self._level(scope, pair)
                found += [Held(f"{key} with client {client}", said) for key, said in level.items()]
        return [held for held in found if held.said]

    def client(self, client_id: str) -> list[Held]:
        """The limits of a client id, those with single users last."""
        levels = [self._level("client", name) for name in (client_id, DEFAULT_USER)]
        found = [
            Held(key, [one for level in levels for one in level.get(key, [])])
            for key in LIMIT_TYPES["client"]
        ]
        for scope, pair in dict.fromkeys([*self._own, *self._stream]):
            if scope == USER_CLIENT and pair_of(pair)[1] in (client_id, DEFAULT_USER):
                user = pair_of(pair)[0]
                level = self._level(scope, pair)
                found += [Held(f"{key} with user {user}", said) for key, said in level.items()]
        return [held for held in found if held.said]

    def _rates(
        self, levels: Sequence[Mapping[str, list[Said]]], broker: Mapping[str, list[Said]]
    ) -> Iterator[Held]:
        """Publish rates come from one level: a rate that this level lacks is off."""
        first = next(
            (
                i
                for i, level in enumerate(levels)
                if any(level.get(key) and level[key][0].value != -1 for key in PUBLISH)
            ),
            len(levels),
        )
        for key, other in zip(PUBLISH, PER_TOPIC, strict=True):
            said = [one for level in levels[first:] for one in level.get(key, [])]
            if first < len(levels) and not levels[first].get(key):
                of_level = next(levels[first][k] for k in PUBLISH if levels[first].get(k))[0]
                said.insert(0, Said(-1, of_level.document, of_level.where))
            yield Held(key, said + broker.get(other, []))

    def _level(self, scope: str, name: str) -> dict[str, list[Said]]:
        """The limits that a level has for a name, the one in force first."""
        found: dict[str, list[Said]] = {}
        documents = [self._many[s] for s in matching(self._many, scope, name)]
        written = [one for d in documents for one in self._own.values() if one.document is d]
        own = self._own.get((scope, name))
        if own is None and scope == "topic":
            own = next(
                (
                    one
                    for source, one in self._own.items()
                    if source[0] == "topic" and full_topic_name(source[1]) == name
                ),
                None,
            )
        for one in [*written, *([own] if own is not None else [])]:
            about = f"{one.document['scope']} {name_of(one.document)}"
            _put(found, one.document["limits"], about, lambda key, one=one: _place(one, key))
        record = self._stream.get((scope, name))
        if record is not None:
            replaced, found = found, {}
            about = f"{record.document['scope']} {name_of(record.document)}"
            _put(found, record.document.get("limits") or {}, about, lambda key: record.where)
            for key, said in replaced.items():
                if key in found:
                    found[key] += said
        return found


def _place(one: WrittenDocument, key: str) -> str:
    line = one.line(f"limits.{key}")
    return f"{one.file}:{line}" if line else f"{one.file}: {one.key}"


def _put(found: dict[str, list[Said]], limits: Mapping[str, Any], about: str, where: Any) -> None:
    for key, value in limits.items():
        each = value.items() if key == "backlog_quota" else [(None, value)]
        for kind, inner in each:
            name = key if kind is None else f"{key}.{kind}"
            found.setdefault(name, []).insert(0, Said(inner, about, where(name)))
