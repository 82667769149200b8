"""The section of the configuration on polled client quotas of Kafka."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError, field_validator

from app.config.base import Polled, Positive, Text, resolved, variable_address
from app.config.exporters import ExporterMapping, shipped_mappings
from app.config.reading import describe, read_yaml
from app.errors import UserError
from app.terminal.secrets import without_secrets

WHERE = "source.quotas"
"""The place of these settings in the configuration; messages name keys below it."""


class KafkaQuotasSettings(Polled):
    """The limits of a Kafka cluster's clients that are polled, exporters of its brokers' metrics, and
    where the polls are stored. The connection is in the options of the source.
    """

    exporters: dict[str, Text] = {}
    """By broker, as its records name it, the address at which its metrics are."""
    mapping: Text = "jmx-exporter"
    """One of those that ship, or a file."""
    interval_ms: Positive = 15_000

    @field_validator("exporters")
    @classmethod
    def _addresses(cls, found: dict[str, str]) -> dict[str, str]:
        for broker, url in found.items():
            try:
                variable_address(url)
            except ValueError:
                raise ValueError(
                    f"{broker}: {without_secrets(url)} is no address (http://host:port/metrics)"
                ) from None
        return found

    @field_validator("mapping")
    @classmethod
    def _can_be_read(cls, name: str) -> str:
        mapping_of(name)
        return name

    def addresses(self) -> dict[str, str]:
        """The exporters, with secrets from the environment."""
        return resolved(self.exporters, f"{WHERE}.exporters")


def mapping_of(name: str) -> ExporterMapping:
    """The mapping of a name or of a file; ValueError for one that is none."""
    known = shipped_mappings()
    if name in known:
        return known[name]
    try:
        return ExporterMapping.model_validate(read_yaml(Path(name), dict))
    except ValidationError as error:
        raise ValueError(f"{name}: {describe(error, ExporterMapping)[0]}") from None
    except UserError as error:
        # without a colon behind the name: what stands before one is taken for a key
        why = str(error).removeprefix(f"{name}: ")
        raise ValueError(f"{name} {why} (allowed: a file, {', '.join(known)})") from None
