"""The broker's half of the PIP-385 exchange, section 6: what a mark does to reads at once."""

from __future__ import annotations

from collections.abc import Mapping

from tests.reference.connection import BROKER, GROUP, TOPIC

NOT_SUPPORTED, NOT_WAITED = "not_supported", "not_waited"
RECEIVED, TIMED_OUT = "received", "timed_out"
WAITING = None
"""Whether a receipt comes is not known yet."""


def knows_command(switches: Mapping[str, str], announced: bool) -> bool:
    """Whether commands are sent to the clients of a connection."""
    model = switches["receipt_model"]
    return model == "all" or (model != "none" and announced)


def waits_for_receipt(switches: Mapping[str, str], kind: str) -> bool:
    """Rule 2; the other types follow rule 3."""
    return kind in (TOPIC, GROUP) or (kind == BROKER and switches["broker_reason"] == "wait")


def state_at_mark(switches: Mapping[str, str], kind: str, announced: bool) -> str | None:
    """Receipt state of a mark when it is made."""
    if not knows_command(switches, announced):
        return NOT_SUPPORTED
    if not waits_for_receipt(switches, kind):
        return NOT_WAITED
    return WAITING if switches["receipt_model"] == "observed" else RECEIVED


def blocks_reads(state: str | None) -> bool:
    """The broker relies on a client that has confirmed, or still can."""
    return state not in (WAITING, RECEIVED)
