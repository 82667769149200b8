"""Polls the limits of a Kafka cluster's clients, and the metrics of its brokers over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app import http
from app.config.kafka_quotas import WHERE, KafkaQuotasSettings, mapping_of
from app.config.shipped import shipped
from app.sources.kafka.exported_rates import ExportedRates
from app.sources.kafka.kafka_client import KafkaClient, answer_time_ms
from app.sources.kafka.kafka_probe import of_client, require
from app.sources.kafka.quota_policies import (
    FEED,
    Entity,
    Limits,
    limits_by_entity,
    policy_documents,
    policy_records,
    quota_kinds,
)
from app.sources.poll_records import Record
from app.sources.polling import Begun, Polling, Report, Unanswered, noted
from app.sources.ports import missing
from app.sources.prometheus_text import page_lines
from app.sources.turns import share
from app.terminal.counts import counted

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.config.source import SourceSettings

STAGES = 2
"""Waits of a poll for a broker: limits, and what follows from them."""
LIMITS = "limits"
"""The limits of the poll before, in the memory of the spool: user, client id and limits each."""
MOST_BYTES, PART = 256 << 20, 64 << 10
"""Of an exporter's answer, and of what is read of it at once."""


class QuotaPoller(Polling[KafkaQuotasSettings, KafkaClient]):
    """Polls limits and all exporters at once; one file per poll."""

    feed, where, what = FEED, WHERE, "entities"

    def __init__(
        self,
        settings: KafkaQuotasSettings,
        options: Mapping[str, str],
        spool_folder: Path | str,
        say: Callable[[str], None] | None = None,
        client: KafkaClient | None = None,
    ) -> None:
        """`options` are those of the client."""
        answer_ms = answer_time_ms(settings, STAGES)
        super().__init__(
            settings,
            spool_folder,
            say,
            lambda stop: client or KafkaClient(options, answer_ms, stopping=stop),
        )
        self._addresses = settings.addresses()
        mapping = mapping_of(settings.mapping)
        self._rates = {
            broker: ExportedRates(mapping, settings.cluster, broker) for broker in self._addresses
        }

    def _poll(self, begun: Begun, report: Report) -> Iterable[Record]:
        with ThreadPoolExecutor(max(len(self._addresses), 1)) as pool:
            asked = {
                broker: pool.submit(self._exported, broker, url, begun)
                for broker, url in self._addresses.items()
            }
            limits = self._limits(begun, report)
            rates = [self._answered(broker, each.result, report) for broker, each in asked.items()]
        if limits is None and all(each is None for each in rates):
            raise Unanswered(report.problems.pop(0))
        report.skipped = (limits is None) + sum(each is None for each in rates)
        records = [] if limits is None else self._changed(limits, begun, report)
        records += (record for each in rates if each is not None for record in each)
        memory = self.spool.memory
        memory.last_poll_ms = max(memory.last_poll_ms, begun.now_ms)
        return sorted(records, key=lambda record: record["ts_wall_ms"])

    def _changed(self, limits: dict[Entity, Limits], begun: Begun, report: Report) -> list[Record]:
        """The limits that differ from those of the poll before."""
        extra = self.spool.memory.extra
        before = _entities(extra.get(LIMITS, []))
        extra[LIMITS] = [[*entity, values] for entity, values in limits.items()]
        report.gone, report.polled = len(before.keys() - limits.keys()), len(limits)
        documents = policy_documents(before, limits)
        kinds = None
        with noted(report.problems):
            kinds = quota_kinds(self._client.features(begun.deadline)) if documents else None
        # They hold for the rates of this poll, whichever answer came first.
        return policy_records(documents, begun.now_ms, self._settings.cluster, kinds)

    def _known(self) -> int:
        return len(self._addresses) + 1

    def _limits(self, begun: Begun, report: Report) -> dict[Entity, Limits] | None:
        with noted(report.problems):
            return limits_by_entity(self._client.quotas(share(begun.deadline, STAGES)))
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


def check(feed: SourceSettings, folder: Path) -> None:
    """UserError for a cluster that does not answer, and where no exporter does.

    It is asked before there is a JVM, so rights are reported by the polls.
    """
    require(feed.reader_options())
    failed = []
    for broker, url in feed.quotas.addresses().items():
        try:
            next(exported(url, feed.quotas.timeout_ms / 1000))
            return
        except Unanswered as error:
            failed.append(f"{WHERE}.exporters.{broker}: {error}")
    if failed:
        kind = missing(feed.quotas.addresses().values())
        raise kind(f"{failed[0]}\nits address and timeout_ms decide this")


def measured(feed: SourceSettings) -> str:
    """The clients that each exporter shows, or why it shows none, and then the rules that it lacks."""
    found, rules = list[str](), ""
    for broker, url in feed.quotas.addresses().items():
        about = f"exporter of {broker}: "
        with noted(found, about):
            rates = ExportedRates(mapping_of(feed.quotas.mapping), feed.quotas.cluster, broker)
            records = rates.records(exported(url, feed.quotas.timeout_ms / 1000), 0)
            clients = {(each["principal"], each["client_id"]) for each in records}
            why = counted(len(clients), "measured client") if clients else rates.unmeasured()
            found.append(about + why)
            if rates.unruled:
                rules = "\n" + (shipped("exporters") / "rules" / "jmx-exporter.yml").read_text(
                    "utf-8"
                )
    return "; ".join(found) + rules.rstrip()


def poller(
    settings: Settings, feed: SourceSettings, folder: Path, say: Callable[[str], None] | None
) -> QuotaPoller:
    """The poller of a feed; it asks from the JVM of this process' Spark session."""
    return QuotaPoller(feed.quotas, of_client(feed.reader_options()), folder, say)
