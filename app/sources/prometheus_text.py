"""The samples of some metrics in the text that an exporter for Prometheus answers with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples(lines: Iterable[str], names: Collection[str]) -> Iterator[Sample]:
    """Those of metrics of these names. A server answers with many more: other lines are not parsed."""
    wanted = tuple(f"{name}{end}" for name in names for end in ("{", " "))
    text = "\n".join(line for line in lines if line.startswith(wanted))
    for family in text_string_to_metric_families(text + "\n"):
        yield from family.samples
