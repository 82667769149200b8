"""Idempotent appends: every commit carries an application id and a batch number, so a repeated
batch writes nothing twice.

delta-rs appends small results on the driver, in a few milliseconds each.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from app.errors import UserError
from app.tables import checkpoints, durable, lease
from app.tables.creation import create
from app.tables.definitions import TABLES, Table
from app.tables.log_properties import CHECKPOINT_COMMITS, log_properties
from app.tables.small_files import local_path, path_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties

    from app.config.location import Location


COMMITS, IN_STORE = 3, 16
"""Number of tables that are appended to concurrently in a folder, and in an object store: each
commit mostly waits.
"""
ATTEMPTS = 5
"""Attempts of a commit that conflicts with another one."""
_REFUSED = "failed validation check"
"""What delta-rs says of rows that a constraint refuses."""
KNOWN_S = 600.0
"""For so long a table in a store is taken to have what this writer has committed, and is not asked,
which reads its log. Commits of others that it then meets are still there: maintenance shortens the log.
"""


class Writer:
    """Appends to the tables of one warehouse under the application id of one query."""

    def __init__(
        self,
        warehouse: Location,
        query: str,
        history_ms: int,
        application: str | None = None,
    ) -> None:
        """Tables that it creates keep the versions of the last `history_ms` readable. `application`
        is for a writer that is no query and numbers its batches itself."""
        self._warehouse = warehouse
        self.query = query
        self._local = local_path(warehouse.uri)
        self.at_once = IN_STORE if self._local is None else COMMITS
        self._record: checkpoints.Committed | None = None
        """What the checkpoint of a query records of its commits."""
        if application is None:
            self.application = checkpoints.application_id(warehouse, query)
            self._record = checkpoints.committed(warehouse, query)
        else:
            self.application = application
        self._commits = dict(self._record.tables) if self._record else {}
        self._history_ms = history_ms
        self._open: dict[str, Any] = {}
        self._newest: dict[str, tuple[int, float]] = {}
        """The newest batch of this query in a table of a store, and when it was committed, while no
        commit of its own has an unknown end: nobody else commits under its id.
        """

    def prepare(self, names: list[str]) -> None:
        """Create missing tables, so that readers find them from the start."""
        with ThreadPoolExecutor(self.at_once) as pool:
            list(pool.map(self._table, names))

    def append(self, name: str, rows: pa.Table, batch: int) -> None:
        """Append the rows of a batch to a table, unless the table has the batch."""
        if not rows.num_rows:
            return
        from deltalake import write_deltalake

        def write(table: DeltaTable, marker: CommitProperties) -> None:
            # Columns of a later release, or of whoever added some, are null in these rows.
            write_deltalake(
                table,
                rows,
                mode="append",
                commit_properties=marker,
                post_commithook_properties=_afterwards(table),
                schema_mode="merge" if len(table.schema().fields) > rows.num_columns else None,
            )

        self._once(name, batch, write)

    def add_files(self, name: str, actions: list[Any], batch: int) -> None:
        """Add files that tasks have written to a table, unless the table has the batch."""
        from deltalake import Schema

        definition = TABLES[name]
        schema, partition_by = Schema.from_arrow(definition.schema), list(definition.partition_by)

        def write(table: DeltaTable, marker: CommitProperties) -> None:
            table.create_write_transaction(
                actions,
                "append",
                schema,
                partition_by,
                commit_properties=marker,
                post_commithook_properties=_afterwards(table),
            )
            table.update_incremental()  # of itself it stays as it was, and refuses the next one

        self._once(name, batch, write)

    def _once(
        self, name: str, batch: int, write: Callable[[DeltaTable, CommitProperties], None]
    ) -> None:
        """Commit a batch under its number, unless the table has it.

        If the properties of the table change meanwhile, Delta refuses the commit once. UserError for
        rows that a constraint of someone else refuses.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError

        table = self._table(name)
        marker = CommitProperties(app_transactions=[Transaction(self.application, batch)])
        for attempt in range(ATTEMPTS):
            known, at_s = self._newest.pop(name, (-1, -KNOWN_S))
            newest = known if time.monotonic() - at_s < KNOWN_S else self.newest(table)
            if newest >= batch:
                break
            lease.require(self._warehouse, self.query)
            try:
                write(table, marker)
                if self._local is None:
                    self._newest[name] = batch, time.monotonic()
                break
            except CommitFailedError:
                if attempt + 1 == ATTEMPTS:
                    raise
            except DeltaError as error:
                if _REFUSED not in str(error):
                    raise
                raise UserError(
                    f"warehouse: a constraint on the table {path_in(self._warehouse, name)} refuses"
                    f" rows of batch {batch}\ndrop it (ALTER TABLE … DROP CONSTRAINT) and start again:"
                    " the batch is repeated"
                ) from None
        self._note(name, batch)

    def newest(self, table: DeltaTable) -> int:
        """The newest batch of this query in a table, as it is now; -1 for none."""
        table.update_incremental()
        batch = table.transaction_version(self.application)
        return -1 if batch is None else int(batch)

    def settle(self, batch: int | None = None) -> None:
        """End a batch, or (None) a commit between batches: the query's checkpoint records its commits.
        In a local warehouse its rows now survive a loss of power.
        """
        self.record(batch)
        if self._local is not None:
            durable.sync(self._local)

    def record(self, batch: int | None) -> None:
        """Record the commits of a batch as `settle` does, in a file that is not yet on disk."""
        if self._record is not None:
            settled = self._record.settled
            crc32 = (
                None
                if batch is None or self._local is None
                else checkpoints.plan_crc32(self._warehouse, self.query, batch)
            )
            if batch is not None and crc32 is not None:
                settled = checkpoints.Settled(batch, crc32)
            wanted = checkpoints.Committed(dict(self._commits), self._waiting(), settled)
            if wanted != self._record:
                checkpoints.record(self._warehouse, self.query, wanted)
                self._record = wanted

    def _waiting(self) -> dict[str, list[checkpoints.GatheredFile]]:
        """Files whose rows wait for a commit, by table."""
        return {}

    def _note(self, name: str, batch: int) -> None:
        known = self._commits.get(name)
        if known is None or known.batch < batch or known.application != self.application:
            before = -1 if known is None or known.application != self.application else known.batch
            self._commits[name] = checkpoints.Commit(self.application, batch, before)

    def _table(self, name: str) -> Any:
        if name not in self._open:
            from deltalake import DeltaTable

            definition = TABLES[name]
            path, options = path_in(self._warehouse, name), self._warehouse.storage()
            table = (
                DeltaTable(path, storage_options=options)
                if DeltaTable.is_deltatable(path, options)
                else create(self._warehouse, name, log_properties(self._history_ms, name))
            )
            _add_columns(table, definition)
            self._open[name] = table
        return self._open[name]


def _afterwards(table: DeltaTable) -> PostCommitHookProperties:
    """What delta-rs does after a commit: where it writes a checkpoint, it removes expired commits,
    which it would list the log for after each one.
    """
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(
        cleanup_expired_logs=(table.version() + 2) % CHECKPOINT_COMMITS == 0
    )


def _add_columns(table: DeltaTable, definition: Table) -> None:
    """Add missing columns to a table of an earlier release; existing rows have null there."""
    from deltalake import Schema

    there = {field.name for field in table.schema().fields}
    lacking = [f for f in Schema.from_arrow(definition.described).fields if f.name not in there]
    if lacking:
        table.alter.add_columns(lacking)
        table.update_incremental()
