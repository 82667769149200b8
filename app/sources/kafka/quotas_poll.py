"""Polls the limits of a Kafka cluster's clients, and the metrics of its brokers over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from app import http
from app.config.kafka_quotas import WHERE, KafkaQuotasSettings, mapping_of
from app.sources.kafka.exported_rates import ExportedRates
from app.sources.kafka.kafka_client import KafkaClient
from app.sources.kafka.quota_policies import (
    Entity,
    Limits,
    limits_by_entity,
    policy_documents,
    policy_records,
    quota_kinds,
)
from app.sources.polling import Begun, Polling, Report, Unanswered, noted
from app.sources.prometheus_text import page_lines
from app.sources.pulsar.admin_documents import Record
from app.sources.spool import Spool

LIMITS = "limits"
"""The limits of the poll before, in the memory of the spool: user, client id and limits each."""
MOST_BYTES, PART = 256 << 20, 64 << 10
"""Of an exporter's answer, and of what is read of it at once."""


class QuotaPoller(Polling):
    """Polls limits and all exporters at once; one file per poll."""

    feed = "kafka_quotas"
    where = WHERE
    what = "entities"

    def __init__(
        self,
        settings: KafkaQuotasSettings,
        options: Mapping[str, str],
        spool_folder: Path | str,
        say: Callable[[str], None] | None = None,
        client: KafkaClient | None = None,
    ) -> None:
        """`options` are those of the client."""
        super().__init__(
            settings, Spool(Path(spool_folder), settings.cluster, WHERE, dict[str, Any]), say
        )
        self._settings = settings
        self._client = client or KafkaClient(options, settings.timeout_ms, stopping=self._stopping)
        self._addresses = settings.addresses()
        mapping = mapping_of(settings.mapping)
        self._rates = {
            broker: ExportedRates(mapping, settings.cluster, broker) for broker in self._addresses
        }

    def close(self) -> None:
        """End the client, and let another process poll into the folder."""
        self._client.close()
        super().close()

    def _poll(self, begun: Begun, report: Report) -> Path | None:
        memory = self.spool.memory
        with ThreadPoolExecutor(max(len(self._addresses), 1)) as pool:
            asked = {
                broker: pool.submit(self._exported, broker, url, begun)
                for broker, url in self._addresses.items()
            }
            limits = self._limits(begun, report)
            rates = [self._answered(broker, each.result, report) for broker, each in asked.items()]
        if limits is None and all(each is None for each in rates):
            raise Unanswered(report.problems.pop(0))
        records: list[Record] = []
        if limits is not None:
            before = _entities(memory.extra.get(LIMITS, []))
            documents = policy_documents(before, limits)
            # They hold for the rates of this poll, whichever answer came first.
            kinds = None
            with noted(report.problems):
                kinds = quota_kinds(self._client.features(begun.deadline)) if documents else None
            records += policy_records(documents, begun.now_ms, self._settings.cluster, kinds)
            memory.extra[LIMITS] = [[*entity, values] for entity, values in limits.items()]
            report.gone = len(before.keys() - limits.keys())
            report.polled = len(limits)
        records += (record for each in rates if each is not None for record in each)
        report.skipped = (limits is None) + sum(each is None for each in rates)
        report.records = len(records)
        memory.last_poll_ms = max(memory.last_poll_ms, begun.now_ms)
        return self._commit(begun, sorted(records, key=lambda record: record["ts_wall_ms"]))

    def _known(self) -> int:
        return len(self._addresses) + 1

    def _limits(self, begun: Begun, report: Report) -> dict[Entity, Limits] | None:
        with noted(report.problems):
            return limits_by_entity(self._client.quotas(begun.deadline))
        return None

    def _exported(self, broker: str, url: str, begun: Begun) -> list[Record]:
        """The rates of a broker now."""
        seconds = min(self._settings.timeout_ms / 1000, begun.deadline - time.monotonic())
        lines = exported(url, max(seconds, 0.001))
        return self._rates[broker].records(lines, begun.clock_ms())

    def _answered(
        self, broker: str, result: Callable[[], list[Record]], report: Report
    ) -> list[Record] | None:
        about, rates = f"exporter of {broker}: ", self._rates[broker]
        with noted(report.problems, about):
            found = result()
            report.problems += [about + text for text in rates.left.problems()]
            if not found:
                why = rates.unmeasured()
                report.problems.append(f"{about}shows no client that is measured: {why}")
            if label := rates.unparted:
                report.problems.append(
                    f"{about}{label} is left out: a rule takes user and client-id for one tag, and"
                    " there may be none for users alone. Put the quota rules of kafka-2_0_0.yml"
                    " before it"
                )
            return found
        return None


def exported(url: str, seconds: float) -> Iterator[str]:
    """The lines of an exporter's answer, as they arrive; Unanswered without one, or where it and what
    is done with its lines take longer than `seconds`."""
    return page_lines(_parts(url, seconds))


def _parts(url: str, seconds: float) -> Iterator[bytes]:
    until, size = time.monotonic() + seconds, 0
    try:
        # Not by a proxy of the environment: exporters are beside their brokers.
        with http.exchange(http.connections(), "GET", http.address(url), seconds) as answer:
            if answer.status != 200:
                raise Unanswered(f"answers {answer.status}")
            for part in answer.stream(PART):
                size += len(part)
                if size > MOST_BYTES:
                    raise Unanswered(f"answers with more than {MOST_BYTES >> 20} MiB")
                yield part
                if time.monotonic() > until:
                    raise Unanswered(f"is not read in time ({seconds:g} s)")
    except http.NoAnswer as error:
        raise Unanswered(str(error)) from None


def _entities(kept: list[Any]) -> dict[Entity, Limits]:
    return {(user, client_id): limits for user, client_id, limits in kept}
