"""Owners as a series of their own, to be joined with those of topics and users."""

from __future__ import annotations

from app.config.owners import Owner
from app.show.metrics.owned import owned
from tests.support.throttle_rows import OTHER, TOPIC

OWNERS = [
    Owner(topic="acme/orders/created", team="shop", contact="#shop"),
    Owner(principal="*", cluster="east", team="data", cost_centre="7"),
]
SAMPLES = [
    ("pulsar_storage_backlog_size", ("east", "acme/orders", TOPIC), 1.0),
    ("pulsar_storage_backlog_size", ("east", "acme/orders", OTHER), 1.0),
    ("pulsar_storage_backlog_size", ("east", "", "other"), 1.0),
    ("weir_producer_ids_rejected_total", ("east", "b1", "etl"), 1.0),
    ("weir_producer_ids_rejected_total", ("west", "b1", "etl"), 1.0),
    ("weir_producer_id_heap_bytes", ("east", "b1"), 1.0),
]


def test_every_topic_and_user_with_series_has_one_for_its_owner() -> None:
    assert list(owned(OWNERS, SAMPLES)) == [
        ("weir_owner_info", ("east", "", "etl", "data", "", "7"), 1),
        ("weir_owner_info", ("east", TOPIC, "", "shop", "#shop", ""), 1),
    ]
    assert list(owned([], SAMPLES)) == []
