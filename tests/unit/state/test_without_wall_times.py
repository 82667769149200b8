"""Rate limits whose records have no wall times: as the reference has them."""

from __future__ import annotations

from hypothesis import given

from tests.reference.job import judge
from tests.support.effort import drawn
from tests.unit.state.contract.jobs import JOBS
from tests.unit.state.trace import PARAMS, play
from tests.unit.state.traces import Trace, traces


@drawn(150)
@given(traces(walls=False, starts=False, switches=True))
def test_without_wall_times(trace: Trace) -> None:
    """Windows lie on the monotonic clock; only a later record moves it."""
    bare = [{**r, "ts_wall_ms": None} for r in trace.records if r["event_type"] != "policy"]
    if not bare:
        return
    end = max(r["ts_mono_ns"] for r in bare) + 60_000_000_000
    lateness_ns = PARAMS["allowed_lateness_ms"] * 1_000_000
    closing = {
        **bare[0],
        "event_type": "reads_resumed",
        "cnx_id": "nobody",
        "ts_mono_ns": end,
        "seq": 10_000,
    }
    got = play([[*bare, closing]], trace.params, trace.configured)
    expected = judge(bare, {**PARAMS, **trace.params}, trace.configured, until_ns=end - lateness_ns)
    JOBS["rate_limits"].assert_same(got, expected)
