"""Notification sinks: webhooks and Alertmanager.

The table `alerts` is the state. The number of the last change that a sink has accepted is stored
below `_weir/alerts` of the warehouse; later changes are sent with the next round, however long the
sink was down. A new sink receives the firing alerts and no history. Delivery is at least once:
after a crash between the answer and the note of it the change is sent again.
"""

from __future__ import annotations

import fcntl
import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from app import http
from app.config.alerts import AlertmanagerSink, AlertSettings, HttpSink, WebhookSink
from app.config.owners import owner_of
from app.errors import UserError, reason
from app.show.alerts.episodes import FIRING, RESOLVED
from app.show.alerts.journal import Journal, Key, Row, key_of
from app.tables.json_documents import Document
from app.tables.small_files import local_path
from app.terminal.secrets import without_secrets

if TYPE_CHECKING:
    from app.config.owners import Owner
    from app.read.relations import Warehouse

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 8.0
MOST_IN_ONE = 100
"""Alerts in one request."""
ROUNDS = 4
"""So many rounds may fail before an alert expires in Alertmanager."""
WATCHDOG = "weir-watchdog"


class SinkRefused(Exception):
    """A sink refused a request; the message contains no secrets."""


@dataclass(frozen=True)
class TakenChanges:
    """A sink has accepted all changes up to `number`, except those with the numbers in `but`."""

    number: int
    but: list[int]


_NOTE: Document[TakenChanges] = Document(TakenChanges)


class Delivery:
    """Delivers the changes of one warehouse's alerts to the sinks of its configuration."""

    def __init__(
        self, warehouse: Warehouse, alerts: AlertSettings, journal: Journal, names: Sequence[str]
    ) -> None:
        self._warehouse, self._alerts = warehouse, alerts
        self._journal = journal
        self._names = names
        self._resent_at: dict[str, float] = {}
        self._current: dict[Key, Row] = {}
        self._watchdog = {
            "alert": WATCHDOG,
            "labels": [("warehouse", without_secrets(warehouse.uri))],
            "severity": "none",
            "state": FIRING,
            "since_ms": time.time_ns() // 1_000_000,
            "summary": "Weir evaluates its alerts; where this one ends, nobody does",
            "runbook": "docs/alerts.md",
            "value": None,
        }

    def deliver(self, stopping: threading.Event, current: Sequence[Row] = ()) -> list[str]:
        """One round over all sinks in parallel; the errors, a line each.

        `current` holds the firing alerts with their newest values.
        """
        self._current = {key_of(row): row for row in current}
        sinks = self._alerts.http_sinks
        if not sinks:
            return []
        with self.alone() as alone:
            if not alone:
                return []
            with ThreadPoolExecutor(max_workers=len(sinks)) as pool:
                return [text for text in pool.map(lambda s: self._one(s, stopping), sinks) if text]

    def _one(self, sink: HttpSink, stopping: threading.Event) -> str | None:
        """Deliver to one sink; the error, if any."""
        try:
            taken = self._taken(sink)
            changes = self._changes(taken)
            if isinstance(sink, WebhookSink):
                for part in _parts(changes):
                    body = {
                        "version": 1,
                        "warehouse": self._warehouse.uri,
                        "alerts": [
                            {
                                **with_owner(self._warehouse.owners, row),
                                "runbook": self._alerts.runbook_at(row["runbook"]),
                            }
                            for row in part
                        ],
                    }
                    post(sink, body, stopping)
                    taken = self.note(sink, taken, part[-1]["number"])
            else:
                for rows in _parts(self._for_alertmanager(sink, changes)):
                    post(sink, [self._alert(sink, row) for row in rows], stopping)
                    self._resent_at[sink.identity] = time.monotonic()
            self.note(sink, taken, self._journal.number)
        except Exception as error:  # noqa: BLE001 - the other sinks are served
            self._resent_at.pop(sink.identity, None)
            known = isinstance(error, SinkRefused | UserError)
            why = str(error) if known else f"{type(error).__name__}: {reason(error)}"
            return f"{sink.title}: {why}; missed changes are sent later"
        return None

    def _taken(self, sink: HttpSink) -> TakenChanges:
        """The changes that a sink has accepted so far."""
        kept = _NOTE.usable(self._warehouse, _note_of(sink))
        if kept is not None:
            return kept
        firing = [row["number"] for row in self._journal.firing(self._names) if row["number"]]
        return self.note(sink, TakenChanges(-1, sorted(firing)), self._journal.number, keep=True)

    def note(
        self, sink: HttpSink, taken: TakenChanges, number: int, keep: bool = False
    ) -> TakenChanges:
        """Store that a sink has accepted all up to a number; with `keep`, except its list."""
        left = taken.but if keep else [n for n in taken.but if n > number]
        new = TakenChanges(max(taken.number, number), left)
        if new != taken:
            _NOTE.keep(self._warehouse, _note_of(sink), new)
        return new

    def _changes(self, taken: TakenChanges) -> list[Row]:
        """The changes that a sink has not accepted yet, in order."""
        wanted = set(self._names)
        return [
            row
            for row in self._journal.after(taken.number, taken.but)
            if row["state"] in (FIRING, RESOLVED) and row["alert"] in wanted
        ]

    def _for_alertmanager(self, sink: AlertmanagerSink, changes: Sequence[Row]) -> list[Row]:
        """Firing alerts, if a resend is due or there is a change; alerts that have ended; and the one
        that fires for as long as somebody evaluates."""
        passed_s = time.monotonic() - self._resent_at.get(sink.identity, float("-inf"))
        if not changes and passed_s * 1000 < sink.resend_ms:
            return []
        firing = [self._as_it_stands(row) for row in self._journal.firing(self._names)]
        fires = {key_of(row) for row in firing}
        ended = {key_of(row): row for row in changes if key_of(row) not in fires}
        # The severity is one of Alertmanager's labels: a risen alert is another one there.
        risen = [
            {**before, "state": RESOLVED, "at_ms": row["at_ms"]}
            for row in changes
            if (before := self._journal.risen.get(key_of(row))) is not None
        ]
        over = [row for row in ended.values() if row["state"] == RESOLVED]
        return [*firing, *risen, *over, *([self._watchdog] if sink.watchdog_ms else [])]

    def _as_it_stands(self, row: Row) -> Row:
        """A recorded alert with its current value and summary; the record has the first ones."""
        now = self._current.get(key_of(row), row)
        return {**row, "value": now["value"], "summary": now["summary"]}

    def _alert(self, sink: AlertmanagerSink, row: Row) -> dict[str, Any]:
        """A row for Alertmanager, with how long it keeps one that is not sent again."""
        kept_ms = sink.watchdog_ms if row["alert"] == WATCHDOG else sink.expire_ms
        life_ms = max(ROUNDS * max(self._alerts.interval_ms or 0, sink.resend_ms), kept_ms or 0)
        told = {**row, "runbook": self._alerts.runbook_at(row["runbook"])}
        return _alert(sink, told, life_ms, owner_in(self._warehouse.owners, row))

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether no other process delivers at this moment; always true on an object store."""
        root = local_path(self._warehouse.uri)
        if root is None:
            yield True
            return
        folder = root / "_weir" / "locks"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / "alerts").open("w")
        except OSError as error:
            raise UserError(f"warehouse: cannot write {folder}: {error.strerror}") from error
        with lock as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Rows in batches of one request each."""
    return (rows[start : start + MOST_IN_ONE] for start in range(0, len(rows), MOST_IN_ONE))


def _note_of(sink: HttpSink) -> str:
    return f"_weir/alerts/{sink.identity}.json"


def post(sink: HttpSink, body: Any, stopping: threading.Event) -> None:
    """Send JSON to a sink, with retries and growing pauses; Refused if it does not accept it."""
    data = json.dumps(body, ensure_ascii=False).encode()
    address = sink.address()
    if isinstance(sink, AlertmanagerSink):
        address = f"{address.rstrip('/')}/api/v2/alerts"
    headers = {"Content-Type": "application/json", "User-Agent": "weir", **sink.all_headers()}
    reason: str | None = None
    for _ in http.attempts(sink.retries, stopping, FIRST_PAUSE_S, LONGEST_PAUSE_S):
        reason, again = _attempt(address, data, headers, sink.timeout_ms / 1000)
        if reason is None:
            return
        if not again:
            break
    raise SinkRefused(reason)


def _attempt(
    address: str, data: bytes, headers: dict[str, str], seconds: float
) -> tuple[str | None, bool]:
    """The error of one attempt, None on success; and whether a retry may help."""
    try:
        # A redirect is not followed: it would send secrets to another host.
        there = http.address(address)
        with http.exchange(
            http.connections_to(there), "POST", there, seconds, body=data, headers=headers
        ) as answer:
            if 200 <= answer.status < 300:
                return None, False
            again = answer.status >= 500 or answer.status in (408, 429)
            return f"answers with status {answer.status}{http.beginning(answer)}", again
    except http.NoAnswer as error:
        return str(error), error.again


def plain(row: Row) -> dict[str, Any]:
    """A row as JSON; its `number` is the same each time it is sent."""
    value = row["value"]
    kept = None if value is None or not math.isfinite(value) else value
    return {**row, "labels": dict(row["labels"]), "value": kept}


def with_owner(owners: Sequence[Owner], row: Row) -> dict[str, Any]:
    """A row as JSON, with the owner of what it is about if there is one."""
    owner = owner_in(owners, row)
    return {**plain(row), **({"owner": owner} if owner else {})}


def owner_in(owners: Sequence[Owner], row: Row) -> dict[str, str] | None:
    """The owner of the topic or user that an alert is about, as configured."""
    labels = dict(row["labels"])
    entity = labels.get("entity") or labels.get("limiter_name")
    is_topic = entity is not None and "/" in entity
    found = owner_of(
        owners,
        labels.get("cluster"),
        labels.get("topic") or (entity if is_topic else None),
        labels.get("user") or labels.get("principal") or (None if is_topic else entity),
    )
    return None if found is None else found.named()


def _alert(
    sink: AlertmanagerSink, row: Row, life_ms: int, owner: dict[str, str] | None
) -> dict[str, Any]:
    """A row as a postableAlert of Alertmanager's API v2, with the owner's team as a label."""
    now_ms = time.time_ns() // 1_000_000
    ends_ms = now_ms + life_ms if row["state"] == FIRING else min(row["at_ms"], now_ms)
    annotations = {
        "summary": row["summary"],
        "runbook": row["runbook"] or "",
        "value": "" if row["value"] is None else f"{row['value']:g}",
        **(owner or {}),
    }
    return {
        # Alertmanager drops empty labels.
        "labels": {
            **({"team": owner["team"]} if owner else {}),
            **sink.labels,
            **{k: v for k, v in row["labels"] if v},
            "alertname": row["alert"],
            "severity": row["severity"],
        },
        "annotations": {k: v for k, v in annotations.items() if v},
        "startsAt": _rfc3339(min(row["since_ms"], ends_ms)),
        "endsAt": _rfc3339(ends_ms),
    }


def _rfc3339(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
