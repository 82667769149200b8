"""The stateful operator `rate_limits`: publish throttling with attribution (PIP-385, PIP-322).

Key: (cluster, broker). Clock: monotonic. State: limiters, connections, waiting records, policies.
Timers: release tasks, waits for receipts and window ends, driven by event time. Tables:
`throttle_events`, `topic_throttle_stats`, `limiter_stats`, `producer_throttle`, `publish_verdicts`
and its late or repeated records for `quarantine`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from state.engine import mono
from state.engine.clocks import ENDLESS_MS, NS_PER_MS
from state.engine.documents import Configured
from state.engine.job import Step
from state.engine.reach import Reach
from state.rate_limits import bucket
from state.rate_limits import layout as L
from state.rate_limits.declaration import NAME
from state.rate_limits.shard import Brokers

SWITCHES: dict[str, tuple[str, tuple[str, ...]]] = {
    "tokenbucket": ("tokenbucket", bucket.VERSIONS),
    "release_condition": ("positive", L.RELEASE_CONDITIONS),
    "throttle_tracker": ("shared", L.TRACKERS),
    "limit_change": ("scheduled", L.LIMIT_CHANGES),
    "protocol": ("protocol", L.PROTOCOLS),
    "receipt_model": ("receipt_model", L.RECEIPT_MODELS),
    "broker_reason": ("broker_waits", L.BROKER_REASONS),
    "pause_rule": ("sends_model", L.PAUSE_RULES),
    "repeat_throttle": ("keeps_later", L.REPEAT_THROTTLES),
    "timeout_rule": ("seen_counts", L.TIMEOUT_RULES),
    "observed_pauses": ("ignores_pauses", L.OBSERVED_PAUSES),
}
"""Version parameters: the field of the key that holds each, and its values."""


class RateLimits(mono.MonoJob):
    """See the module; one instance serves all shards and keeps nothing between calls."""

    name = NAME
    form = Brokers.form

    def __init__(self, params: Mapping[str, Any], policies: Sequence[str] = ()) -> None:
        """`params` are the job's resolved parameters, `policies` the configured documents as
        JSON."""
        self._lateness_ns = int(params["allowed_lateness_ms"]) * NS_PER_MS
        self._idle_advance_ms = int(params["idle_advance_ms"])
        self._clock_skew_ms = int(params.get("clock_skew_ms", ENDLESS_MS))
        self._idle_ns = int(params["idle_state_ms"]) * NS_PER_MS
        self._window_ms = int(params["stats_window_ms"])
        self._verdicts = "publish_verdicts" in params["extra_outputs"]
        self._policies = Configured(policies)
        self._receipt_wait_ms = int(params["throttleProducerReceiptWaitTimeMillis"])
        self._observed_wait_ns = int(params["observed_wait_ms"]) * NS_PER_MS
        self._switches = {
            field: values.index(params[name]) for name, (field, values) in SWITCHES.items()
        }

    def step(self, state: bytes | None, blobs: Sequence[bytes], reach: Reach) -> Step:
        """Judge a batch of one shard; see `state.engine.job`."""
        parameters = {
            "verdicts": int(self._verdicts),
            "idle_ns": self._idle_ns,
            "window_ms": self._window_ms,
            "observed_wait_ns": self._observed_wait_ns,
            **self._switches,
        }
        s = Brokers(self._policies, self._receipt_wait_ms, parameters, state)
        return mono.step(
            s,
            blobs,
            reach,
            self._lateness_ns,
            self._idle_advance_ms,
            self._clock_skew_ms,
        )
