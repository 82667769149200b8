"""The owners of the topics and users that have series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from app.config.owners import Owner, owner_of
from app.show.metrics.catalogue import METRICS
from app.show.metrics.entities import OTHER
from app.show.metrics.part import Labels, Sample

ENTITIES = ("topic", "user")


def owned(owners: Sequence[Owner], samples: Iterable[Sample]) -> Iterator[Sample]:
    """A sample for every topic and user of `samples` that has an owner; what is summed has none."""
    for cluster, topic, user in sorted(_named(samples)) if owners else ():
        found = owner_of(owners, cluster, topic or None, user or None)
        if found is not None:
            whose = (found.team, found.contact or "", found.cost_centre or "")
            yield "weir_owner_info", (cluster, topic, user, *whose), 1


def _named(samples: Iterable[Sample]) -> set[Labels]:
    found: set[Labels] = set()
    for name, values, _ in samples:
        labels = dict(zip(METRICS[name].labels, values, strict=True))
        for entity in ENTITIES:
            value = labels.get(entity)
            if value and value != OTHER:
                names = {"topic": "", "user": "", entity: value}
                found.add((labels.get("cluster", ""), names["topic"], names["user"]))
    return found
