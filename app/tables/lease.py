"""One run at a time for the queries of a warehouse in an object store, which has no locks.

A run writes an object for each of its queries and renews it. Another start looks whether the object
changes: clocks of machines are not compared. An object that has not changed for LEASE_S is of a run
that has ended, or of one that is paused and finds out by `require` before it commits anything.
delta-rs opens the store and offers no conditional put, so a start writes its lease and reads it
SETTLE_S later: of starts at once one goes on. That is the one that wrote last, and where they wrote in
turns, so that each has some of the leases, the one of them whose name is the largest.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from app.errors import UserError
from app.tables.small_files import read_text, remove, write_text
from app.terminal.printable import say
from app.threads import working

if TYPE_CHECKING:
    from app.config.location import Location

FOLDER = "_weir/leases"
LEASE_S = 30.0
"""How long a lease that does not change is waited for."""
RENEW_S = 10.0
SETTLE_S = 3.0
"""Longer than a store takes to write a small object."""
LOOK_S = 1.0
Write = Callable[[Any, int], None]
_held: list[Lease] = []


class Lease:
    """The leases of one run."""

    def __init__(self, warehouse: Location, queries: Sequence[str]) -> None:
        self._warehouse, self.uri = warehouse, warehouse.uri
        self._files = {query: f"{FOLDER}/{query}.json" for query in queries}
        self._about = {
            "owner": secrets.token_hex(16),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._renewed = 0
        self._asking = Lock()
        self._asked_s: dict[str, float] = {}
        """When the last look at the lease of a query began: it answers all who asked before."""
        self.lost: UserError | None = None
        """Why the run must end."""

    def take(self) -> None:
        """Take the leases; UserError if another run has one of them."""
        for query in self._files:
            self._wait_for_end(query)
        self._write()
        time.sleep(SETTLE_S)
        found = {
            str(_content(text).get("owner", "")): (query, text)
            for query, text in zip(self._files, map(self._read, self._files), strict=True)
        }
        if max(found) != self._about["owner"]:
            self._files = {}  # what is left in them is the other's
            raise self._refusal(*found[max(found)])
        self._write()

    def require(self, query: str | None = None) -> None:
        """UserError if another run has taken the lease of a query, or of any (None)."""
        now_s = time.monotonic()
        with self._asking:
            for each in self._files if query is None else {query} & self._files.keys():
                if self._asked_s.get(each, -1.0) >= now_s:
                    continue
                begin_s = time.monotonic()
                if self.lost is None and not self._is_own(found := self._read(each)):
                    self.lost = UserError(
                        f"warehouse: this run has lost its lease on {self._warehouse.uri} (query {each})"
                        f" to {_shown(found)}: it was paused, or did not reach the store, for"
                        f" {LEASE_S:.0f} s\nit stops and commits nothing further; the other run"
                        " continues where it was"
                    )
                self._asked_s[each] = begin_s
        if self.lost is not None:
            raise self.lost

    def renew(self, stop: Event) -> None:
        """Renew the leases until `stop` is set, or one is lost."""
        while not stop.wait(RENEW_S):
            try:
                self.require()
                self._write()
            except UserError:
                if self.lost is not None:
                    return
            except Exception:  # noqa: BLE001 - the store does not answer: the next one tells
                continue

    def release(self) -> None:
        """Remove the leases that are this run's: the next start need not wait."""
        for query, file in self._files.items():
            with suppress(Exception):  # else the lease ends by itself
                if self._is_own(self._read(query)):
                    remove(self._warehouse, file)

    def _wait_for_end(self, query: str) -> None:
        first = self._read(query)
        if first is None:
            return
        say(
            f"the lease on {self._warehouse.uri} (query {query}) is that of {_shown(first)}; waiting up to "
            f"{LEASE_S:.0f} s for its end"
        )
        until_s = time.monotonic() + LEASE_S
        while time.monotonic() < until_s:
            time.sleep(LOOK_S)
            found = self._read(query)
            if found is None:
                return
            if found != first:
                raise self._refusal(query, found)

    def _read(self, query: str) -> str | None:
        return read_text(self._warehouse, self._files[query], "remove it, if no run is at work")

    def _write(self) -> None:
        self._renewed += 1
        text = json.dumps({**self._about, "renewed": self._renewed})
        for file in self._files.values():
            write_text(self._warehouse, file, text)

    def _is_own(self, text: str | None) -> bool:
        return _content(text).get("owner") == self._about["owner"]

    def _refusal(self, query: str, text: str | None) -> UserError:
        return UserError(
            f"warehouse: {_shown(text)} works on {self._warehouse.uri} (query {query}) and has a lease,"
            f" which ends {LEASE_S:.0f} s after it is renewed last\nstop it first, or take another "
            "warehouse"
        )


@contextmanager
def held(warehouse: Location, queries: Sequence[str]) -> Iterator[None]:
    """Hold and renew the leases of these queries; UserError if another run has one."""
    lease = Lease(warehouse, queries)
    try:
        lease.take()
        _held.append(lease)
        with working(lease.renew, "weir-lease"):
            yield
    finally:
        with suppress(ValueError):
            _held.remove(lease)
        lease.release()


def require(warehouse: Location, query: str) -> None:
    """UserError if this process has lost the lease of a query to another run."""
    for lease in _held:
        if lease.uri == warehouse.uri:
            lease.require(query)


def guarded(warehouse: Location, query: str, write: Write) -> Write:
    """The function that writes the batches of a query, which writes none without the lease."""

    def writing(frame: Any, batch: int) -> None:
        require(warehouse, query)
        write(frame, batch)

    return writing


def look(warehouse: Location) -> None:
    """UserError if this process is known to have lost a lease; asks nobody."""
    for lease in _held:
        if lease.uri == warehouse.uri and lease.lost is not None:
            raise lease.lost


def _content(text: str | None) -> dict[str, object]:
    try:
        found = json.loads(text or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _shown(text: str | None) -> str:
    """The run that a lease is of."""
    about = _content(text)
    if not about.keys() >= {"host", "pid", "since"}:
        return "another run"
    return f"the run on {about['host']} (process {about['pid']}, since {about['since']})"
