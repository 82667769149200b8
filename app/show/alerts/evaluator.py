"""Rounds over the alert rules: evaluate, record, notify; once, or repeatedly until stopped."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from app.config.alerts import AlertSettings, StdoutSink
from app.errors import UserError, reason
from app.read.relations import Kept, Warehouse
from app.show.alerts.episodes import FIRING, RESOLVED
from app.show.alerts.evaluation import Evaluation, evaluate_all
from app.show.alerts.journal import Journal, Row, firing_rows
from app.show.alerts.rule_files import chosen, rules_of
from app.show.alerts.sinks import Delivery, owner_in, with_owner
from app.tables.writable import obstacle
from app.terminal.interrupt import stopping_at_signals
from app.terminal.moments import instant_of
from app.terminal.printable import printable, say, say_json
from app.terminal.program import PROGRAM

if TYPE_CHECKING:
    from app.config.owners import Owner
    from app.config.settings import Settings

Log = Callable[[str], None]


@dataclass
class AlertRound:
    """What one round found."""

    rules: int
    firing: list[Row] = field(default_factory=list)
    changes: list[Row] = field(default_factory=list)
    """The recorded changes."""
    broken: list[str] = field(default_factory=list)
    """Rules that could not be evaluated, by name."""
    undelivered: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    """Alerts beyond the limit of a rule, by its name."""
    empty: list[str] = field(default_factory=list)
    """Rules whose tables have no rows yet."""

    def of_cluster(self, cluster: str | None) -> AlertRound:
        """With the alerts whose labels name this cluster; None for all."""
        if cluster is None:
            return self
        label = ("cluster", cluster)
        firing, changes = (
            [row for row in rows if label in row["labels"]] for rows in (self.firing, self.changes)
        )
        return replace(self, firing=firing, changes=changes)

    def notes(self) -> list[str]:
        """Problems of the round, a line each."""
        beyond = [
            f"alert rule {name}: {count} alerts suppressed by its limit"
            for name, count in self.left_out.items()
        ]
        return [*self.broken, *beyond, *self.undelivered]


class Evaluator:
    """Evaluates the rules of a configuration on its warehouse, records changes and notifies."""

    def __init__(
        self, warehouse: Warehouse, alerts: AlertSettings, only: Sequence[str] = ()
    ) -> None:
        """With `only`, rules of these names are evaluated; sinks receive all changes."""
        self.warehouse = warehouse if warehouse.folder else replace(warehouse, kept=Kept())
        self.alerts = alerts
        every = rules_of(alerts)
        self.rules = chosen(every, only)
        self.journal = Journal(self.warehouse)
        self.delivery = Delivery(warehouse, alerts, self.journal, [rule.name for rule in every])

    def look(self, at_ms: int | None) -> AlertRound:
        """The alerts that fire at a time, by the data alone; nothing is recorded or delivered."""
        found = evaluate_all(self.warehouse, self.rules, self.alerts, {}, at_ms)
        firing, wordless = firing_rows(found.evaluated, {})
        left_out = {one.rule.name: one.left_out for one in found.evaluated if one.left_out}
        return AlertRound(
            len(self.rules), firing, [], found.broken + wordless, [], left_out, found.empty
        )

    def round(self, stopping: threading.Event) -> AlertRound:
        """Evaluate every rule, record the changes, and deliver what sinks have not accepted."""
        self.warehouse.require()
        self.journal.load()
        found = self.evaluate()
        written, wordless = self.journal.record(found.evaluated)
        firing, _ = firing_rows(
            [
                one
                for one in found.evaluated
                if not any(text.startswith(f"alert rule {one.rule.name}:") for text in wordless)
            ],
            self.journal.newest,
        )
        undelivered = self.delivery.deliver(stopping, firing)
        left_out = {one.rule.name: one.left_out for one in found.evaluated if one.left_out}
        return AlertRound(
            len(self.rules),
            firing,
            written,
            found.broken + wordless,
            undelivered,
            left_out,
            found.empty,
        )

    def evaluate(self) -> Evaluation:
        return evaluate_all(self.warehouse, self.rules, self.alerts, self.journal.recorded())


def check_command(
    settings: Settings,
    as_json: bool = False,
    at_ms: int | None = None,
    only: Sequence[str] = (),
    cluster: str | None = None,
) -> int:
    """One round; 1 while an alert fires, of one cluster or all, else 0. Rules are evaluated and
    changes recorded of all clusters. At a time of the past, and in a warehouse that
    cannot be written, nothing is recorded.

    A rule that cannot be evaluated is reported by name and does not keep the others from being
    evaluated; it is a UserError if nothing fires.
    """
    evaluator = Evaluator(Warehouse.of(settings.location, settings.owners), settings.alerts, only)
    evaluator.warehouse.require_cluster(cluster)
    refused = None
    if at_ms is None:
        evaluator.warehouse.require()
        refused = obstacle(settings.location, "alerts", "alerts/_delta_log")
    found = (
        evaluator.round(threading.Event())
        if at_ms is None and refused is None
        else evaluator.look(at_ms)
    ).of_cluster(cluster)
    if len(found.empty) == found.rules:
        raise UserError(
            f"warehouse: {settings.warehouse}: nothing was checked, since the tables that the rules"
            " read have no rows yet"
        )
    _print(settings.owners, found, as_json)
    if refused is not None:
        note = f"{refused}; changes are neither recorded nor delivered"
        if not found.firing:
            raise UserError(note)
        say(f"weir: {note}", file=sys.stderr)
    if found.broken and not found.firing:
        raise UserError.of_many(found.broken, f"{PROGRAM} alerts check --json")
    for note in found.notes():
        say(f"weir: {note}", file=sys.stderr)
    return 1 if found.firing else 0


def watch_command(
    settings: Settings,
    interval_ms: int | None = None,
    as_json: bool = False,
    only: Sequence[str] = (),
) -> int:
    """Rounds until SIGTERM or SIGINT; 0. A repeated error is logged once."""
    with stopping_at_signals() as stopping:
        evaluator = Evaluator(
            Warehouse.of(settings.location, settings.owners), settings.alerts, only
        )
        sinks = [s for s in settings.alerts.sinks if isinstance(s, StdoutSink)]
        formats = {"json"} if as_json else {sink.format for sink in sinks} or {"text"}
        pause_ms = interval_ms or settings.alerts.interval_ms
        if not pause_ms:
            raise UserError(
                "alerts.interval_ms: is null, so run evaluates no rules; watch needs --interval"
            )
        keep_watching(
            evaluator,
            pause_ms,
            stopping,
            lambda text: say(f"weir: {text}", file=sys.stderr, flush=True),
            sorted(formats),
        )
    return 0


def keep_watching(
    evaluator: Evaluator,
    interval_ms: int,
    stopping: threading.Event,
    log: Log,
    formats: Sequence[str],
    first_after_ms: int = 0,
) -> set[str]:
    """A round every `interval_ms`, from start to start, until `stopping` is set; the errors of the
    last one."""
    logged: set[str] = set()
    due = time.monotonic() + first_after_ms / 1000
    while not stopping.wait(max(due - time.monotonic(), 0)):
        due = time.monotonic() + interval_ms / 1000
        logged = one_round(evaluator, stopping, log, formats, logged)
    return logged


def one_round(
    evaluator: Evaluator,
    stopping: threading.Event,
    log: Log,
    formats: Sequence[str],
    logged: set[str],
) -> set[str]:
    """One round; logs errors that are not in `logged`, and returns all of them."""
    try:
        found = evaluator.round(stopping)
    except UserError as error:
        notes = [str(error)]
    except Exception as error:  # noqa: BLE001 - the next round may do better
        notes = [f"{type(error).__name__}: {reason(error)}"]
    else:
        notes = found.notes()
        for each in formats:
            show_changes(evaluator.warehouse.owners, found.changes, each)
    for note in notes:
        if note not in logged:
            log(note)
    return set(notes)


def show_changes(owners: Sequence[Owner], rows: Sequence[Row], form: str) -> None:
    """Print the alerts that began to fire or were resolved."""
    for row in rows:
        if row["state"] not in (FIRING, RESOLVED):
            continue
        whole = with_owner(owners, row) if form == "json" else None
        if whole is None:
            say(line(row), flush=True)
        else:
            say_json(whole, flush=True)


def line(row: Row) -> str:
    """A change in one line."""
    severity = f" ({row['severity']})" if row["state"] == FIRING else ""
    at = instant_of(row["at_ms"])
    return f"{row['state']:9} {row['alert']}{severity} at {at}: {printable(row['summary'])}"


def _print(owners: Sequence[Owner], found: AlertRound, as_json: bool) -> None:
    if as_json:
        answer: dict[str, Any] = {
            "rules": found.rules,
            "firing": [with_owner(owners, row) for row in found.firing],
            "changes": [with_owner(owners, row) for row in found.changes],
            "broken": found.broken,
            "undelivered": found.undelivered,
            "left_out": found.left_out,
            "empty": found.empty,
        }
        say_json(answer)
        return
    for row in found.firing:
        say(f"firing    {row['alert']} ({row['severity']}): {printable(row['summary'])}")
        if owner := owner_in(owners, row):
            say(f"          owner: {printable(', '.join(owner.values()))}")
        if row["runbook"]:
            say(f"          what to do: {row['runbook']}")
    for row in found.changes:
        if row["state"] == RESOLVED:
            say(
                f"resolved  {row['alert']} at {instant_of(row['at_ms'])}: "
                f"{printable(row['summary'])}"
            )
    count, empty = found.rules, len(found.empty)
    without = f"; the tables of {empty} have no rows yet" if empty else ""
    say(f"{count} rule{'s' if count != 1 else ''} checked, {len(found.firing)} firing{without}")
