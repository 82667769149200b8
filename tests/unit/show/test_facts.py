"""A fact is the same set for whoever tells of it: alert, finding, metric and view, on any warehouse."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.jobs.client_quotas.findings import FINDINGS
from app.jobs.client_quotas.metrics import UnlimitedClients
from app.read.relations import Warehouse, connect
from app.show.metrics.entities import Bounds
from app.show.report.phrases import NAMED
from app.show.report.report_reader import ReportReader, ReportSpan
from tests.conftest import ROOT
from tests.support.client_quota_rows import MINUTE, stats, usage
from tests.support.effort import drawn
from tests.support.throttle_rows import write

QUOTAS = ROOT / "app" / "jobs" / "client_quotas"
MIB_PER_S = 60 * 2**20
USERS = ("ann", "bob", "cid", "dan")
BYTES = st.sampled_from([0, MIB_PER_S - 60, MIB_PER_S, 2 * MIB_PER_S, 4 * MIB_PER_S])
TIMES = st.sampled_from([0.0, 0.9 * MINUTE, 1.0 * MINUTE, 2.0 * MINUTE, 8.0 * MINUTE])


@drawn(200)
@given(
    uses=st.lists(
        st.tuples(st.sampled_from(USERS), BYTES, TIMES), min_size=1, unique_by=lambda u: u[0]
    ),
    limited=st.sets(st.sampled_from((*USERS, "eve"))),
)
def test_clients_without_a_limit(uses: list[tuple[str, int, float]], limited: set[str]) -> None:
    rows: dict[str, list[dict[str, Any]]] = {
        "client_usage": [usage(0, user, size, handler_time_ms=ms) for user, size, ms in uses],
        "client_quota_stats": [stats(0, user) for user in limited],
    }
    with TemporaryDirectory() as folder:
        for name, table in rows.items():
            write(folder, name, table)
        (rule,) = yaml.safe_load((QUOTAS / "alerts" / "client-without-limit.yaml").read_text())
        part = UnlimitedClients(Bounds(10, 1000))
        with connect(Warehouse(folder)) as tables:
            part.take(tables)
            alert = {row[2] for row in tables.execute(rule["sql"]).fetchall()}
            view = tables.execute("SELECT principal FROM clients_without_limit").fetchall()
        (findings,) = FINDINGS
        told = findings.findings(ReportReader(Warehouse(folder), ReportSpan()))
    metric = {labels[2] for _, labels, share in part.samples() if share >= 0.25}
    finding = {f"User:{action.user}" for one in told for action in one.actions}
    assert alert == {name for (name,) in view} == metric
    assert finding <= alert and len(finding) == min(len(alert), NAMED)
    assert any("1 other client is" in one.sentence for one in told) == (len(alert) == NAMED + 1)
