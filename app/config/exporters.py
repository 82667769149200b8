"""How exporters name the metrics of client quotas: mappings, which are files below configs/exporters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.config.base import Model
from app.config.reading import read_yaml
from app.config.shipped import shipped, yaml_files

QuotaType = Literal["produce", "fetch", "request", "controller_mutation"]
Column = Literal["value_milli", "bound_milli", "throttle_avg_milli"]
Encoding = Literal["percent", "object_name"]


class ExportedMetric(Model):
    """What the samples of one metric are, as far as they have some labels."""

    metric: str
    labels: dict[str, str] = {}
    quota_type: QuotaType
    column: Column
    counter: bool = False
    """Its increase per second is the number."""
    exempt: bool = False
    """Of requests that the request quota exempts."""


class ExporterMapping(Model):
    """The labels of user and client id, and the metrics. A sample without such a label has the empty
    name; one with a label in `without` is of no client."""

    principal: str
    client_id: str
    encodings: dict[str, Encoding] = {}
    """By label: `percent` as Kafka encodes users, `object_name` with quotes as JMX has them."""
    without: list[str] = []
    metrics: Annotated[list[ExportedMetric], Field(min_length=1)]


def shipped_mappings() -> dict[str, ExporterMapping]:
    """Those that ship with Weir, by name."""
    return {
        file.name.partition(".")[0]: ExporterMapping.model_validate(read_yaml(file, dict))
        for file in yaml_files(shipped("exporters"))
    }
