"""Removes rows that are older than configured.

A file whose rows are all too old is removed whole; one with newer rows is rewritten without the old
ones. The limit is a midnight (UTC), so that this happens once a day. Rows without a time are as old
as their file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.config.maintenance import DAY_MS, Retention
from app.engine.payloads import STAGED
from app.errors import UserError, did_you_mean
from app.read.databases import literal
from app.read.relations import ANY_ORDER, connect_to
from app.run.maintenance.exchange import exchange
from app.run.maintenance.opened import Opened, clock_of
from app.run.maintenance.rewriting import Rewriter
from app.tables.data_files import DataFile, data_files
from app.tables.definitions import TABLES
from app.tables.retained import DONE, REMOVED
from state.engine.payloads import RELEASES

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.maintenance import MaintenanceSettings

NEVER = (STAGED, RELEASES)
"""Tables whose rows are removed when no message needs them."""
KEPT = {
    "alerts": ("number", "SELECT max(number) FROM alerts GROUP BY alert, labels"),
    "quality_results": (
        "run_id",
        'SELECT arg_max(run_id, checked_ms) FROM quality_results GROUP BY "table"',
    ),
    "producer_id_live": (
        "number",
        "SELECT arg_max(number, polled_ms) FROM producer_id_live AS p"
        " GROUP BY cluster, broker, topic, p.user",
    ),
    "open_transactions": (
        "number",
        "SELECT arg_max(number, polled_ms) FROM open_transactions"
        " GROUP BY cluster, topic, partition, producer_id, start_offset",
    ),
}
"""Rows that stay at any age, by the columns that identify them: the newest row of an alert, of an
audited table, of a broker's topic and user, or of a transaction.
"""


def check(maintenance: MaintenanceSettings) -> None:
    """UserError for a rule that does not fit its table."""
    for number, rule in enumerate(maintenance.retention):
        where = f"maintenance.retention.{number}"
        allowed = [name for name in TABLES if name not in NEVER]
        if rule.table not in allowed:
            raise UserError(
                f"{where}.table: there is no table {rule.table} whose rows grow old "
                f"({did_you_mean(rule.table, allowed)})"
            )
        if rule.tenant is not None and "topic" not in TABLES[rule.table].names:
            raise UserError(
                f"{where}.tenant: rows of {rule.table} have no topic, so no tenant\n"
                "leave tenant out: the rule is then for all rows of the table"
            )


class RetentionRules:
    """The configured rules of a warehouse, and the midnight up to which each has been applied."""

    def __init__(self, warehouse: Location, maintenance: MaintenanceSettings, now_ms: int) -> None:
        self._warehouse, self._maintenance = warehouse, maintenance
        self._now_ms = now_ms
        self._done = REMOVED.usable(warehouse, DONE) or {}

    def apply(self, opened: Opened, dry_run: bool) -> int:
        """Remove rows that are too old from a table; returns their number."""
        left = 0
        gone: list[str] = []
        for rule in self._maintenance.retention:
            before_ms = (self._now_ms - rule.keep_ms) // DAY_MS * DAY_MS
            key = f"{rule.table} {rule.tenant or ''}".strip()
            if rule.table != opened.name or self._done.get(key) == before_ms:
                continue
            cut = _Cut(self._maintenance, opened, rule, before_ms, gone)
            rows, whole = cut.apply(dry_run)
            left += rows
            if dry_run:
                gone.append(cut.old)
            if whole and not dry_run:
                self._done[key] = before_ms
                REMOVED.keep(self._warehouse, DONE, self._done)
        return left


class _Cut:
    """One rule, applied to one table."""

    def __init__(
        self,
        maintenance: MaintenanceSettings,
        opened: Opened,
        rule: Retention,
        before_ms: int,
        gone: Sequence[str],
    ) -> None:
        """`gone` has the conditions of rows that were already removed."""
        self._opened = opened
        self._rewriter = Rewriter(opened, maintenance.memory_bytes)
        self._before_ms = before_ms
        conditions = [f'coalesce("{clock_of(opened.table)}", $written_ms) < {before_ms}']
        self._params: dict[str, Any] = {}
        if rule.tenant is not None:
            conditions.append(
                f"weir_topic_tenant(topic) IS NOT DISTINCT FROM {literal(rule.tenant)}"
            )
        if opened.name in KEPT:
            column, newest = KEPT[opened.name]
            conditions.append(f'NOT list_contains($kept, "{column}")')
            with connect_to(opened.warehouse, {opened.name: opened.delta}, ANY_ORDER) as connection:
                self._params["kept"] = [row[0] for row in connection.execute(newest).fetchall()]
        conditions += [f"({condition}) IS NOT TRUE" for condition in gone]
        self._plain = len(conditions) == 1
        self.old = " AND ".join(conditions)

    def apply(self, dry_run: bool) -> tuple[int, bool]:
        """Apply the rule. Returns the number of removed rows, and whether all could be removed."""
        gone: list[DataFile] = []
        rows, whole = 0, True
        for file in data_files(self._opened.delta, self._opened.clock):
            old = self._old_rows(file)
            rows += old
            if old and old == file.rows:
                gone.append(file)
            elif old and not dry_run:
                whole = self._without_old(file) and whole
        if gone and not dry_run:
            whole = exchange(self._opened, gone, [], data_change=True) and whole
        return rows, whole

    def _old_rows(self, file: DataFile) -> int:
        """Number of rows of a file that are too old; the file is read only if its log does not show
        it.
        """
        timed = file.untimed == 0 and file.least is not None and file.most is not None
        if timed and file.least is not None and file.least >= self._before_ms:
            return 0
        if timed and self._plain and file.most is not None and file.most < self._before_ms:
            return file.rows or 0
        return self._rewriter.count([file], self.old, self._of(file))

    def _without_old(self, file: DataFile) -> bool:
        return self._rewriter.replace(
            [file], f"({self.old}) IS NOT TRUE", self._of(file), data_change=True
        )

    def _of(self, file: DataFile) -> Mapping[str, Any]:
        return {**self._params, "written_ms": file.written_ms}
