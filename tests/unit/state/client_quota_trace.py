"""Small traces of client quotas, shipped to the core as the router ships them."""

from __future__ import annotations

import json
from typing import Any

from tests.support.records import record
from tests.unit.state.shipping import Row, Shipper, params_of

VERDICTS = {"extra_outputs": ("client_quota_verdicts",)}
PARAMS = params_of("client_quotas", allowed_lateness_ms=0, **VERDICTS)
T0 = 1_767_621_600_000


def other(kind: str, at_ms: int, **columns: Any) -> Row:
    """A record of broker b1, so long after the start."""
    return record(kind, T0 + at_ms, **columns)


def request(at_ms: int, api: str = "PRODUCE", user: str = "a", **columns: Any) -> Row:
    """A request of a user's client `app`."""
    who = {"principal": f"User:{user}", "client_id": "app"}
    return other("client_request", at_ms, **{**who, "api": api, **columns})


def quota(user: str | None, client: str | None = None, **limits: float) -> str:
    """A policy document of a user, a client or both."""
    about: dict[str, Any] = {"scope": "user", "name": user}
    if user is None:
        about = {"scope": "client", "name": client}
    elif client is not None:
        about["client_id"] = client
    return json.dumps({**about, "limits": limits})


def policy(at_ms: int, text: str, **columns: Any) -> Row:
    return other("policy", at_ms, policy_json=text, **columns)


_SHIPPER = Shipper("client_quotas", PARAMS)
blob, numbered, play = _SHIPPER.blob, _SHIPPER.numbered, _SHIPPER.play
