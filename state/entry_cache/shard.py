"""State of one shard of `entry_cache`: its brokers, waiting records, policies, names; as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from state.engine.clocks import NS_PER_MS
from state.engine.documents import Policy, Source
from state.engine.key import Closed, Pair, Row
from state.engine.mono_shard import Form, Shard
from state.engine.records import among
from state.entry_cache import flow, rows, store
from state.entry_cache.broker import Broker
from state.entry_cache.declaration import COLUMNS, NAME, STATE_VERSION
from state.entry_cache.layout import LARGEST, NULL, Array, World
from state.entry_cache.passes import next_effect
from state.entry_cache.settings import Variant
from state.entry_cache.store import LAYOUTS, NAME_FIELDS
from state.entry_cache.world import blank, new_world

READ = among(
    flow.BROKER_STARTED,
    flow.ENTRY_ADDED,
    flow.DISPATCH,
    flow.ENTRY_READ,
    flow.ENTRY_RELEASED,
    flow.REPLAY_QUEUED,
    flow.ENTRY_INVALIDATED,
    flow.CURSOR_STATE,
    flow.CURSOR_DELETED,
    flow.LEDGER_DELETED,
    flow.POLICY,
    flow.GAP,
)
"""By kind, whether the job reads it; other records are left out before they could move a clock."""


class Brokers(Shard[Broker]):
    """What one shard knows between two calls."""

    form = Form(NAME, STATE_VERSION, COLUMNS, LAYOUTS, NAME_FIELDS, ("fresh",))
    scopes = frozenset({"broker"})
    kinds = READ

    def __init__(
        self,
        config: Sequence[str],
        variants: Sequence[Variant],
        parameters: Mapping[str, int] | None = None,
        make_broker: type[Broker] = Broker,
        data: bytes | None = None,
    ) -> None:
        """`variants` are the caches wanted now: one that the state does not know begins empty."""
        super().__init__(config, parameters, data)
        self._variants, self._make_broker = variants, make_broker

    def new_key(self, pair: Pair, documents: dict[Source, Policy]) -> Broker:
        """A key that nothing is known of."""
        w = new_world(*pair, len(self._variants))
        w.variants["given"] = [self.names.intern_one(v.text) for v in self._variants]
        return self._make_broker(w, self.names, documents, self._variants)

    def read_key(
        self, parts: dict[str, Array], documents: dict[Source, Policy], more: dict[Source, Row]
    ) -> Broker:
        """The key behind its arrays; each cache goes on as the stored one that was given the
        same."""
        given = [self.names.get(text) for text in parts["variants"]["given"].tolist()]
        source = np.full(len(self._variants), -1, np.int64)
        variants = blank("variants", len(source))
        for i, variant in enumerate(self._variants):
            if variant.text in given:
                source[i] = given.index(variant.text)
                given[source[i]] = ""
                variants[i] = parts["variants"][source[i]]
        w = store.unpack(parts, source, variants)
        b = self._make_broker(w, self.names, documents, self._variants)
        b.fresh = {document for document, (fresh,) in more.items() if fresh}
        # settings may have changed since the last run; caches that it did not have begin
        b.begin_caches(w.variants["given"] < 0)
        b.key["next_ns"] = NULL
        return b

    def pack(self, world: World) -> dict[str, Array]:
        """The arrays to store of a world."""
        return store.pack(world)

    def rows(self, b: Broker) -> dict[str, pa.Table]:
        """Output rows of a key since it was opened, by table."""
        return rows.of(b, self.names)

    @property
    def may_rest(self) -> bool:
        """Keys with passes whose rows are requested must be open."""
        return not self.parameters.get("with_evictions")

    def due_ms(self, b: Broker | Closed) -> Iterator[int]:
        """The end of a window with content, and the next pass that removes something.

        Passes whose removals nobody asked for wait for the end of the window.
        """
        k = b.key
        if k["touched"]:
            yield int(k["window_start_ms"]) + int(k["window_ms"]) - 1
        if k["with_evictions"] and isinstance(b, Broker):
            due = int(next_effect(b.world))
            if due != LARGEST:
                yield int(k["last_wall_ms"]) + (due - int(k["last_ns"])) // NS_PER_MS - 1
