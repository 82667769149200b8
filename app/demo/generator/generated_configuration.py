"""The configuration that fits a trace, and its policies: what `run` needs to process it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.demo.generator.trace import Trace
from app.demo.generator.write import MARK, write_policies, write_yaml
from app.errors import UserError
from app.jobs import parts

MS_PER_S = 1000


def document(
    trace: Trace, warehouse: str, source: dict[str, Any], policies: str, cache_bytes: int | None
) -> dict[str, Any]:
    """The configuration as YAML has it; `cache_bytes` where the trace does not name a size."""
    found: dict[str, Any] = {
        "warehouse": warehouse,
        "source": source,
        "queries": [trace.jobs],
        "policy_files": [policies],
    }
    sections = {job: part.section(trace, cache_bytes) for job, part in parts("scenario").items()}
    return found | {job: section for job, section in sections.items() if section}


class TraceConfiguration:
    """The files that go with a trace in Kafka: a configuration, and its policies beside it."""

    def __init__(self, config: Path | None, servers: str, topic: str) -> None:
        """UserError where a file of that name exists and is not of an earlier trace."""
        self.config = config or Path(f"{topic}.yaml")
        self.policies = self.config.with_name(f"{self.config.stem}-policies.yaml")
        self._servers, self._topic = servers, topic
        for path in (self.config, self.policies):
            if path.exists() and not _ours(path):
                raise UserError(
                    f"{path}: exists and was not written by generate\n"
                    "--config FILE names another file for the configuration of the trace"
                )

    def write(self, trace: Trace, cache_bytes: int | None) -> str:
        """Write both; the text of the configuration."""
        source = {
            "format": "kafka",
            "options": {
                "kafka.bootstrap.servers": self._servers,
                "subscribe": self._topic,
                "startingOffsets": "earliest",
            },
        }
        found = document(trace, "weir-warehouse", source, self.policies.name, cache_bytes)
        # Written faster than time passes: minutes of it may be in one partition and not in another.
        found["idle_advance_ms"] = 2 * MS_PER_S * trace.scenario.duration_s
        write_policies(trace, self.policies)
        return write_yaml(
            self.config, f"{MARK} for the trace in {self._servers}/{self._topic}.", found
        )


def _ours(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as lines:
            return lines.readline().startswith(MARK)
    except (OSError, UnicodeDecodeError):
        return False
