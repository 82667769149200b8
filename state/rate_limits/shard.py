"""State of one shard of `rate_limits`: its brokers, waiting records, policies, names; as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from state.engine.clocks import NS_PER_MS
from state.engine.documents import Policy, Source
from state.engine.key import Closed, Pair, Row
from state.engine.mono_shard import Form, Shard
from state.rate_limits import rows, store
from state.rate_limits.broker import Broker
from state.rate_limits.declaration import COLUMNS, NAME, STATE_VERSION
from state.rate_limits.layout import Array, World
from state.rate_limits.store import NAME_FIELDS, PARTS
from state.rate_limits.world import LAYOUTS


class Brokers(Shard[Broker]):
    """The state of one shard between two calls."""

    form = Form(NAME, STATE_VERSION, COLUMNS, {name: LAYOUTS[name] for name in PARTS}, NAME_FIELDS)

    def __init__(
        self,
        config: Sequence[str],
        receipt_wait_ms: int,
        parameters: Mapping[str, int] | None = None,
        data: bytes | None = None,
    ) -> None:
        """`receipt_wait_ms` is the time to wait for a receipt where no policy sets it."""
        super().__init__(config, parameters, data)
        self._receipt_wait_ms = receipt_wait_ms

    def new_key(self, pair: Pair, documents: dict[Source, Policy]) -> Broker:
        """A key that nothing is known of."""
        return Broker(store.new_world(*pair), self.names, documents, self._receipt_wait_ms)

    def read_key(
        self, parts: dict[str, Array], documents: dict[Source, Policy], more: dict[Source, Row]
    ) -> Broker:
        """The key behind its arrays."""
        return Broker(store.unpack(parts), self.names, documents, self._receipt_wait_ms)

    def prepare(self, b: Broker) -> None:
        """The time to wait for a receipt, and whether reported pauses count."""
        b.set_receipt_wait()
        b.follow_reports()

    def pack(self, world: World) -> dict[str, Array]:
        """The arrays to store of a world."""
        return store.pack(world)

    def rows(self, b: Broker) -> dict[str, pa.Table]:
        """Output rows of a key since it was opened, by table."""
        return rows.of(b, self.names)

    def due_ms(self, b: Broker | Closed) -> Iterator[int]:
        """The first release task or wait for a receipt, and the end of a window with content."""
        k = b.key
        timers = b.parts["timers"] if isinstance(b, Closed) else b.world.timers
        if k["timers"] and len(timers):
            after = (int(timers[0]["due_ns"]) - int(k["last_ns"])) // NS_PER_MS
            yield int(k["last_wall_ms"]) + after - 1
        if k["touched"] or k["paused_cnxs"]:
            yield int(k["window_start_ms"]) + int(k["window_ms"]) - 1
