"""Changes of the policies during a query, applied at the beginning of a batch.

A version is written to the checkpoint first (`app.tables.policy_log`), then passed to the tasks,
then to the table `policies` with the rows of its batch. It holds from 1 ms after the newest event
time that the stream had shown at the beginning of the batch, so no key has judged a record of that
time.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from app.engine.policy_versions import VERSIONS, written
from app.tables import checkpoints, policy_log
from app.tables.definitions import TABLES
from app.tables.policy_log import Policies, PolicyLog, ShadowLog, TakenVersion
from app.tables.shape import shaped
from app.terminal.moments import instant_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings
    from app.engine.operators import Operator
    from app.engine.policy_watch import PolicyWatch, Read

TABLE = "policies"


class PolicyChanges:
    """The policies of one query, on the driver."""

    def __init__(
        self, spark: SparkSession, settings: Settings, query: str, watch: PolicyWatch
    ) -> None:
        self._context = spark.sparkContext
        self._settings, self._query, self._watch = settings, query, watch
        self._again = checkpoints.planned(settings.location, query)
        kept, now = policy_log.load(settings.location, query), watch.now
        self.log: PolicyLog = (
            kept.log
            if kept
            else policy_log.begun(
                now.policies, settings.params_hashes(now.policies), 0, now.read_ms, now.author
            )
        )
        before = kept.shadows if kept else {}
        self.shadows = {name: before.get(name) or self._shadow(name) for name in settings.shadows}
        """The policies that shadows judge by."""
        if kept is None or self.shadows != before:
            self._keep()
        self._at_start = self._taken
        self._refused = 0

    def _shadow(self, name: str) -> ShadowLog:
        """The log of a new shadow. Its past is the query's, and its own policies are a change that
        the next batch takes. In a query without a batch it begins with its own policies.
        """
        batch = checkpoints.last_planned(self._settings.location, self._query) + 1
        log, now = self.log, self._watch.now
        if not batch:
            documents = {**self._settings.shadow_dicts(), **now.shadows}[name]
            hashes = self._settings.params_hashes(documents)
            log = policy_log.begun(documents, hashes, batch, now.read_ms, now.author)
        return ShadowLog(batch, log)

    @property
    def _taken(self) -> list[int]:
        """Number of versions."""
        return [len(log.taken) for log in (self.log, *(s.log for s in self.shadows.values()))]

    def begin(self, batch: int, group: dict[str, Operator]) -> None:
        """Take the changes, unless the batch was planned earlier, and pass the versions to the
        tasks.
        """
        if batch != self._again:
            self._take(batch)
        if self._taken == self._at_start:
            self._context.setLocalProperty(VERSIONS, None)  # type: ignore[arg-type]
            return
        hashes = {job: self._hashes(self.log, job) for job in group}
        for job, operator in group.items():
            operator.stamp.hashes = hashes[job]
            for name, stamp in operator.stamps.items():
                stamp.hashes = self._hashes(self.shadows[name].log, job)
        self._context.setLocalProperty(
            VERSIONS,
            written(
                self.log.versions,
                hashes,
                {name: one.log.versions for name, one in self.shadows.items()},
            ),
        )

    def _hashes(self, log: PolicyLog, job: str) -> list[tuple[int, str]]:
        return log.hashes(job, self._settings.params_hash(job, log.last))

    def _take(self, batch: int) -> None:
        """Begin the versions that the files have and the logs do not."""
        now, said = self._watch.now, []
        if now.policies != self.log.last:
            self.log = self._next(self.log, now.policies, now, batch)
            said.append(self._sentence("policies", self.log.taken[-1]))
        for name, own in self.shadows.items():
            documents = now.shadows.get(name, own.log.last)
            if documents != own.log.last:
                log = self._next(own.log, documents, now, batch)
                self.shadows[name] = replace(own, log=log)
                said.append(self._sentence(f"shadow {name}", log.taken[-1]))
        if said:
            self._keep()
        for sentence in said:
            self._watch.say(sentence)

    def _keep(self) -> None:
        policy_log.keep(self._settings.location, self._query, self.log, self.shadows)

    def _next(self, log: PolicyLog, policies: Policies, now: Read, batch: int) -> PolicyLog:
        """A log with one more version, which holds from the beginning of a batch on."""
        watermark_ms = checkpoints.watermark_ms(self._settings.location, self._query, batch)
        return log.with_next(
            policies,
            self._settings.params_hashes(policies),
            batch,
            watermark_ms + self._settings.idle_advance_ms + 1,
            now.read_ms,
            now.author,
        )

    def rows(self, batch: int) -> pa.Table:
        """Rows of the table `policies` for a batch: the versions that it begins with, and refused
        edits.
        """
        refused = self._watch.refused[self._refused :]
        self._refused += len(refused)
        found: list[dict[str, Any]] = [
            {
                "query": self._query,
                "version": one.number,
                "batch": one.batch,
                "ts_wall_ms": one.since_ms,
                "read_ms": one.read_ms,
                "policy_hash": one.policy_hash,
                "author": one.author,
                "policy_json": json.dumps(
                    self.log.first if one.number == 0 else self.log.last, ensure_ascii=False
                ),
                "summary": _words(one),
            }
            for one in self.log.taken
            if one.batch == batch
        ]
        found += [
            {"query": self._query, "batch": batch, "read_ms": one.read_ms, "error": one.reason}
            for one in refused
        ]
        schema = TABLES[TABLE].schema
        return shaped(pa.Table.from_pylist(found, schema=schema), TABLES[TABLE], {})

    def _sentence(self, what: str, one: TakenVersion) -> str:
        by = f" by {one.author}" if one.author else ""
        count = len(one.changed)
        return (
            f"{what}: version {one.number}{by} holds in {self._query} from"
            f" {instant_of(one.since_ms or 0)} of the stream (batch {one.batch}, {count}"
            f" document{'s' * (count != 1)} changed, hash {one.policy_hash})"
        )


def _words(one: TakenVersion) -> str | None:
    if not one.changed:
        return None
    return "; ".join(
        f"{scope} {name}: "
        + ("removed" if text is None else json.dumps(json.loads(text)["limits"], sort_keys=True))
        for scope, name, text in one.changed
    )
