"""What tests share of views."""

from __future__ import annotations

from typing import Any

from tests.unit.state.trace import play, publish, record
from tests.unit.state.traces import document

TOPIC, PART = "persistent://t/ns/a", "persistent://t/ns/p-partition-"


def traffic() -> dict[str, list[dict[str, Any]]]:
    """Two topics on a connection; the first breaks its limit and its receipt does not come."""
    trace = [
        record("connection_opened", 0, seq=1, cnx_id="c1", supports_throttle=True),
        publish(0, seq=2, topic=TOPIC, messages=9),
        publish(1, seq=3, topic="persistent://t/ns/b", producer=2),
    ]
    return play(
        [trace],
        {"protocol": "pip385", "receipt_model": "observed"},
        [document("topic", "t/ns/a", publishRateInMsgs=2)],
        drain_ms=600_000,
    )
