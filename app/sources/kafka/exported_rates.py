"""`client_rate` records of what an exporter for Prometheus shows of a broker's client quotas."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from app.config.exporters import Encoding, ExportedMetric, ExporterMapping, shipped_mappings
from app.sources.kafka.quota_policies import FEED
from app.sources.poll_records import common
from app.sources.prometheus_text import ExportedSample, OmittedSamples, in_range, samples

MOST = (1 << 63) - 1
_QUOTED = re.compile(r"\\(.)")
_OF_QUOTAS = re.compile(
    r"([a-z_:]\w*(?:quota|produce|fetch|request|mutation)\w*"
    r"(?:(?<!incoming_)(?<!outgoing_)byte_rate|request_time|throttle_time)\w*)[{ ]",
    re.ASCII | re.IGNORECASE,
)
"""Names that exporters give to metrics of quotas, by any rules."""


class Series(NamedTuple):
    """What one record is about."""

    quota_type: str
    principal: str
    client_id: str
    exempt: bool


Columns = dict[str, float]
"""Numbers by column, in whole units."""


class ExportedRates:
    """The answers of one broker, one after the other: counters need the answer before."""

    def __init__(self, mapping: ExporterMapping, cluster: str, broker: str) -> None:
        self._mapping = mapping
        self._cluster, self._broker = cluster, broker
        self._metrics: dict[str, list[ExportedMetric]] = {}
        for each in mapping.metrics:
            self._metrics.setdefault(each.metric, []).append(each)
        self._counted: dict[tuple[Series, str], float] = {}
        self._counted_ms = 0
        self.left = OmittedSamples()
        """What is left out of the newest answer."""
        self.unparted: str | None = None
        """A label of the newest answer that has further tags beside the one that it should have."""
        self.others: str | None = None
        """A metric of the newest answer that the mapping lacks and whose name is as one of quotas."""

    def records(self, lines: Iterable[str], now_ms: int) -> list[dict[str, Any]]:
        """A record for each series that has a value now."""
        found, counted = self._sampled(lines)
        seconds = (now_ms - self._counted_ms) / 1000
        for key, total in counted.items():
            before = self._counted.get(key)
            # A counter that fell began anew.
            if before is not None and before <= total and seconds > 0:
                series, column = key
                found.setdefault(series, {})[column] = (total - before) / seconds
        self._counted, self._counted_ms = counted, now_ms
        return [
            {
                "event_type": "client_rate",
                **common(FEED, self._cluster, self._broker, now_ms),
                "quota_type": series.quota_type,
                "principal": series.principal,
                "client_id": series.client_id,
                **({"exempt": True} if series.exempt else {}),
                **{column: thousandths(number) for column, number in columns.items()},
            }
            for series, columns in sorted(found.items())
            if "value_milli" in columns
        ]

    def _sampled(
        self, lines: Iterable[str]
    ) -> tuple[dict[Series, Columns], dict[tuple[Series, str], float]]:
        """Numbers by series and column: as they are, and totals of counters, those of the threads of
        a broker summed up."""
        found: dict[Series, Columns] = {}
        counted: dict[tuple[Series, str], float] = {}
        self.left, self.unparted, self.others = OmittedSamples(), None, None
        for sample in samples(self._noting(lines), self._metrics, self.left):
            labels = sample.labels
            if any(label in labels for label in self._mapping.without):
                continue
            for each in self._metrics[sample.name]:
                if each.labels.items() <= labels.items():
                    try:
                        value = _value(sample, each)
                    except ValueError as error:
                        self.left.add(error)
                        break
                    series = self._series(each, labels)
                    if each.counter:
                        key = series, each.column
                        counted[key] = counted.get(key, 0) + value
                    else:
                        found.setdefault(series, {})[each.column] = value
                for label, tag in each.labels.items():
                    if labels.get(label, "").startswith(f"{tag}, "):
                        self.unparted = f'{label}="{labels[label]}"'
        return found, counted

    def _noting(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines, of which the first name that others may give to quotas is noted."""
        for line in lines:
            if self.others is None and (named := _OF_QUOTAS.match(line)):
                self.others = named[1] if named[1] not in self._metrics else None
            yield line

    @property
    def unruled(self) -> bool:
        """Whether a rule before the quota rules takes users and client ids of the newest answer."""
        named = re.match("kafka_server_[a-z]+_+(user|client_id)_", (self.others or "").lower())
        return named is not None or self.unparted is not None

    def unmeasured(self) -> str:
        """Why the newest answer may have no client, and what to do."""
        name, shipped = self.others or "", shipped_mappings()
        fits = [
            m for m, each in shipped.items() if name in {metric.metric for metric in each.metrics}
        ]
        if fits:
            return f"it has {name}: mapping is {fits[0]}"
        if self.unruled:
            return (
                f"it has {name or self.unparted}: a rule before the quota rules takes user and client id"
                " into the name, as that of kafka-kraft-3_0_0.yml does. Put the quota rules of the page"
                " on this feed before all others"
            )
        if name:
            return f"it has {name}, which the mapping lacks: name it in a mapping of your own"
        return "no quota of its type was ever set, or mapping is another exporter's"

    def _series(self, metric: ExportedMetric, labels: Mapping[str, str]) -> Series:
        principal = self._name(self._mapping.principal, labels)
        client_id = self._name(self._mapping.client_id, labels)
        return Series(metric.quota_type, principal, client_id, metric.exempt)

    def _name(self, label: str, labels: Mapping[str, str]) -> str:
        return decoded(labels.get(label, ""), self._mapping.encodings.get(label))


def _value(sample: ExportedSample, metric: ExportedMetric) -> float:
    """The number of a sample; ValueError for one that no client can have. A limit may have no end,
    or be 0 or less, by which brokers throttle nobody."""
    most = MOST if metric.counter else MOST / 1000
    if metric.column == "bound_milli" and not 0 < sample.value <= most:
        return math.inf
    return in_range(sample, most)


def decoded(name: str, encoding: Encoding | None) -> str:
    """A name as clients have it."""
    if encoding == "percent":
        return unquote(name)
    if encoding == "object_name" and len(name) > 1 and name[0] == name[-1] == '"':
        return _QUOTED.sub(lambda found: "\n" if found[1] == "n" else found[1], name[1:-1])
    return name


def thousandths(number: float) -> int:
    """In thousandths, within 64 bits."""
    return int(max(-MOST - 1, min(MOST, round(number * 1000)))) if math.isfinite(number) else MOST
