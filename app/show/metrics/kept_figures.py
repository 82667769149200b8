"""Metrics of policies, quarantine, alerts and audits: few labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb

from app.contract.rules import CODES
from app.show.alerts.episodes import FIRING
from app.show.metrics.entities import Bounds
from app.show.metrics.part import Labels, MetricsPart, Sample, Sums, labels, rows
from state.events import DUPLICATE, TOO_LATE
from state.jobs import JOBS


class PolicyVersions(MetricsPart):
    """Policies of the configuration that queries have taken or refused."""

    reads = ("policies",)

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._newest: dict[Labels, int] = {}
        self._edited: dict[Labels, tuple[int, bool]] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        for query, version, read_ms, error in rows(
            fresh,
            "SELECT query, version, read_ms, error FROM policies WHERE read_ms IS NOT NULL"
            " ORDER BY read_ms",
        ):
            key = labels((query,))
            if read_ms >= self._edited.get(key, (read_ms,))[0]:
                self._edited[key] = (read_ms, error is not None)
            if version is not None and version >= self._newest.get(key, version):
                self._newest[key] = version

    def samples(self) -> Iterator[Sample]:
        for key, version in self._newest.items():
            yield "weir_policy_version", key, version
        for key, (_, refused) in self._edited.items():
            yield "weir_policy_edit_refused", key, int(refused)


class Checks(MetricsPart):
    """What was not applied, and what alerts and audits found."""

    reads = ("quarantine", "alerts", "quality_results")

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._quarantined = Sums("weir_quarantine_rows_total")
        # A counter that first shows with 1 has no increase.
        self._quarantined.add((code, None, 0) for code in CODES)
        self._quarantined.add((code, job, 0) for code in (TOO_LATE, DUPLICATE) for job in JOBS)
        self._firing: set[tuple[Labels, Any]] = set()
        self._alerts: set[Labels] = set()
        self._audit: tuple[int, str, dict[Labels, int]] = (0, "", {})

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        self._quarantined.add(
            rows(fresh, "SELECT reason_code, job, count(*) FROM quarantine GROUP BY ALL")
        )
        for alert, about, state, severity in rows(
            fresh,
            "SELECT alert, labels, state, severity FROM alerts"
            " ORDER BY number NULLS FIRST, at_ms, state",
        ):
            rule = labels((alert, severity))
            who = tuple(sorted(about.items())) if about else ()
            self._alerts.add(rule)
            (self._firing.add if state == FIRING else self._firing.discard)((rule, who))
        for run_id, checked_ms, table, success, count in rows(
            fresh,
            """
            SELECT run_id, max(checked_ms) AS checked_ms, "table", success, count(*)
            FROM quality_results GROUP BY run_id, "table", success ORDER BY checked_ms
        """,
        ):
            if run_id != self._audit[1] and checked_ms >= self._audit[0]:
                self._audit = (checked_ms, run_id, {})
            if run_id == self._audit[1]:
                counts = self._audit[2]
                key = labels((table, "held" if success else "failed"))
                counts[key] = counts.get(key, 0) + count

    def samples(self) -> Iterator[Sample]:
        yield from self._quarantined.samples()
        firing = Counter(rule for rule, _ in self._firing)
        for rule in self._alerts:
            yield "weir_alerts_firing", rule, firing[rule]
        for key, count in self._audit[2].items():
            yield "weir_quality_expectations", key, count
