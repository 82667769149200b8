"""What tests share of exporter."""

from __future__ import annotations

from prometheus_client.samples import Sample

from app.config.settings import Settings
from app.show.metrics.exporter import Exporter

Found = dict[tuple[str, tuple[tuple[str, str], ...]], float]
ABOUT_ITSELF = ("weir_exporter_", "weir_table_")


def silent(text: str) -> None:
    raise AssertionError(text)


def read(exporter: Exporter) -> Found:
    """Every sample but those of the exporter and the logs."""
    samples: list[Sample] = [s for metric in exporter.collect() for s in metric.samples]
    found = {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples}
    assert len(found) == len(samples), "no series stands there twice"
    return {key: value for key, value in found.items() if not key[0].startswith(ABOUT_ITSELF)}


def whole(settings: Settings) -> Found:
    """What an exporter finds that has just begun."""
    exporter = Exporter(settings, silent)
    assert exporter.refresh() == []
    return read(exporter)


def value(found: Found, metric: str, **labels: str) -> float:
    """The one sample of these labels among others."""
    (one,) = [
        v
        for (name, have), v in found.items()
        if name == metric and set(labels.items()) <= set(have)
    ]
    return one
