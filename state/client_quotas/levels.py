"""Which limit applies to a request, and who shares it: Kafka's precedence (kafka docs, "Quotas").

Per type a broker remembers which kinds of entities (user, client, both) ever had a quota; from 4.2 on
it forgets a kind with its last quota (KAFKA-19282). While it
is one kind, that kind forms the entity without a search; once there are more, the first of eight
levels that has a quota does. The limit is then searched for the entity alone.

Worked example, bytes of PRODUCE, with quotas for user A (4000), user A with client c1 (5000) and
client c1 (9000): A/c1 has 5000 as user_client; A/c2 and A/c3 share the 4000 of A; D/c1 shares the
9000 of client c1 with every user that has none; D/c4 has no limit.
"""

from __future__ import annotations

import numpy as np

from state.client_quotas import layout as L
from state.client_quotas.layout import NOBODY, Array, Int, Record, World, compiled
from state.engine.tables import find

_NAN = np.nan
_ONE = np.int64(1)
_ZERO = np.int64(0)


@compiled
def bound_in_force(w: World, key: Int, entity: Int, type_: Int) -> float:
    """The bound of an entity on a broker; NaN without one."""
    bound: Record
    bound = w.stream[key, entity, type_]
    if w.from_stream[key, entity] == 0:
        bound = w.configured[key, entity, type_]
    return bound


@compiled
def _set_for(w: World, key: Int, kind: Int, user: Int, client: Int, type_: Int) -> float:
    entity = find(w.entities, (kind, user, client))
    if entity < 0:
        return _NAN
    return bound_in_force(w, key, entity, type_)


@compiled
def _is_set(bound: float) -> bool:
    return bool(bound == bound)


@compiled
def limit_of(w: World, key: Int, user: Int, client: Int, type_: Int) -> tuple[float, Int]:
    """Bound and level of an entity, given by its tags; NaN and `NO_LEVEL` without one."""
    empty = w.settings[0]["empty"]
    if user != empty and client != empty:
        bound = _set_for(w, key, L.OF_BOTH, user, client, type_)
        if _is_set(bound):
            return bound, L.USER_CLIENT
        bound = _set_for(w, key, L.OF_BOTH, user, L.DEFAULT, type_)
        if _is_set(bound):
            return bound, L.USER_DEFAULT_CLIENT
        bound = _set_for(w, key, L.OF_BOTH, L.DEFAULT, client, type_)
        if _is_set(bound):
            return bound, L.DEFAULT_USER_CLIENT
        bound = _set_for(w, key, L.OF_BOTH, L.DEFAULT, L.DEFAULT, type_)
        return bound, L.DEFAULT_USER_DEFAULT_CLIENT if _is_set(bound) else L.NO_LEVEL
    if user != empty:
        bound = _set_for(w, key, L.OF_USER, user, empty, type_)
        if _is_set(bound):
            return bound, L.USER
        bound = _set_for(w, key, L.OF_USER, L.DEFAULT, empty, type_)
        return bound, L.DEFAULT_USER if _is_set(bound) else L.NO_LEVEL
    if client != empty:
        bound = _set_for(w, key, L.OF_CLIENT, empty, client, type_)
        if _is_set(bound):
            return bound, L.CLIENT
        bound = _set_for(w, key, L.OF_CLIENT, empty, L.DEFAULT, type_)
        return bound, L.DEFAULT_CLIENT if _is_set(bound) else L.NO_LEVEL
    return _NAN, L.NO_LEVEL


@compiled
def tags_of(w: World, key: Int, kinds: Int, user: Int, client: Int, type_: Int) -> tuple[Int, Int]:
    """User and client of the entity that a request is charged to; `kinds` are those of the type."""
    empty = w.settings[0]["empty"]
    if kinds == _ZERO or kinds == _ONE << L.OF_CLIENT:
        return empty, client
    if kinds == _ONE << L.OF_USER:
        return user, empty
    if kinds == _ONE << L.OF_BOTH:
        return user, client
    if _is_set(_set_for(w, key, L.OF_BOTH, user, client, type_)):
        return user, client
    if _is_set(_set_for(w, key, L.OF_BOTH, user, L.DEFAULT, type_)):
        return user, client
    if _is_set(_set_for(w, key, L.OF_USER, user, empty, type_)):
        return user, empty
    if _is_set(_set_for(w, key, L.OF_BOTH, L.DEFAULT, client, type_)):
        return user, client
    if _is_set(_set_for(w, key, L.OF_BOTH, L.DEFAULT, L.DEFAULT, type_)):
        return user, client
    if _is_set(_set_for(w, key, L.OF_USER, L.DEFAULT, empty, type_)):
        return user, empty
    return empty, client


@compiled
def kinds_of(w: World, key: Int, entity: Int) -> Int:
    """The bits that an entity adds to the kinds that a broker remembers."""
    kind, found = w.entities.rows[entity].kind, _ZERO
    for type_ in range(L.TYPES):
        if _is_set(bound_in_force(w, key, entity, np.int64(type_))):
            found |= _ONE << (3 * type_ + kind)
    return found


@compiled
def resolve(w: World, pair: Int) -> None:
    """Find the entity and limit of each type for a pair of user and client, by its broker's
    present limits.
    """
    names: Array
    names = w.pair_names[pair]
    key, user, client = names[0], names[1], names[2]
    kinds = w.keys[key]["kinds"]
    for t in range(L.TYPES):
        type_ = np.int64(t)
        mine = (kinds >> (3 * type_)) & 7
        tag_user, tag_client = tags_of(w, key, mine, user, client, type_)
        bound, level = limit_of(w, key, tag_user, tag_client, type_)
        w.pair_tags[pair, t, 0], w.pair_tags[pair, t, 1] = tag_user, tag_client
        w.pair_bound[pair, t], w.pair_level[pair, t] = bound, level
        w.pair_sensor[pair, t] = w.pair_stats[pair, t] = NOBODY
    w.pair_version[pair] = w.links[key]["version"]


@compiled
def remember_kinds(w: World, key: Int, began: Int) -> None:
    """Remember the kinds of limits that are in force, and no others."""
    kinds = _ZERO
    for entity in range(w.entities.used[0]):
        kinds |= kinds_of(w, key, np.int64(entity))
    w.keys[key]["began"], w.keys[key]["kinds"] = began, kinds
    w.links[key]["version"] += 1
