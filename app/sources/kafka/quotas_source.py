"""Limits of a Kafka cluster's clients and their rates at its brokers, polled.

Polls run on the driver beside the queries: `app.sources.kafka.quotas_poll` writes the records of
each poll as one file into a spool folder, which `app.sources.poll_stream` reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.config.kafka_quotas import WHERE, mapping_of
from app.config.shipped import shipped
from app.sources import polled
from app.sources.kafka.exported_rates import ExportedRates
from app.sources.kafka.kafka_probe import of_client, require
from app.sources.polling import Unanswered
from app.sources.ports import missing
from app.terminal.counts import counted

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings
    from app.config.source import SourceSettings
    from app.sources.kafka.quotas_poll import QuotaPoller


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for a cluster that does not answer, and where no exporter does.

    It is asked before there is a JVM, so rights are reported by the polls.
    """
    from app.sources.kafka.quotas_poll import exported

    polled.refuse_path(feed)
    polled.spool_folder(feed, warehouse)
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
    from app.sources.kafka.quotas_poll import exported

    found, rules = [], ""
    for broker, url in feed.quotas.addresses().items():
        rates = ExportedRates(mapping_of(feed.quotas.mapping), feed.quotas.cluster, broker)
        try:
            records = rates.records(exported(url, feed.quotas.timeout_ms / 1000), 0)
        except Unanswered as error:
            found.append(f"exporter of {broker}: {error}")
            continue
        clients = {(each["principal"], each["client_id"]) for each in records}
        why = counted(len(clients), "measured client") if clients else rates.unmeasured()
        found.append(f"exporter of {broker}: {why}")
        if rates.unruled:
            rules = "\n" + (shipped("exporters") / "rules" / "jmx-exporter.yml").read_text("utf-8")
    return "; ".join(found) + rules.rstrip()


def poller(
    settings: Settings, feed: SourceSettings, say: Callable[[str], None] | None = None
) -> QuotaPoller:
    """The poller of the feed; it asks from the JVM of this process' Spark session."""
    from app.sources.kafka.quotas_poll import QuotaPoller

    folder = polled.spool_folder(feed, settings.location)
    return QuotaPoller(feed.quotas, of_client(feed.reader_options()), folder, say)
