"""The page docs/metrics.md, written from the metrics of the jobs and of `app.show.metrics`."""

from __future__ import annotations

from app.show.metrics.catalogue import SECTIONS
from app.show.metrics.definition import MetricsSection
from app.tables.definitions import TABLES, VIEWS

HEAD = """\
# Metrics

Written by `python -m app.docs` from `app/jobs/<job>/metrics` and `app/show/metrics/catalogue.py`;
change those.

`metrics` serves the metrics of a warehouse to Prometheus, without Spark, independently of the
process that writes the warehouse. `run` serves them itself if the configuration has a section
`metrics`.

```sh
./spark-submit.sh metrics --warehouse weir-warehouse
./spark-submit.sh metrics --warehouse weir-warehouse --listen 0.0.0.0:9464   # other hosts too
./spark-submit.sh metrics --warehouse weir-warehouse --once   # print once and exit; --json
```

`/metrics` has the metrics. `/healthz` answers 200 while the process serves, for liveness probes.
`/ready` answers 200 or 503 with the reason: of `run`, whether every query works and the source
answers; of `metrics`, whether the warehouse is readable. Any other path is 404.

It listens on loopback by default: names of topics and users are in the metrics, and there is no
password. `conf/prometheus` has a scrape configuration, recording and alerting rules; `conf/grafana`
has dashboards of the fleet, a tenant, a topic and the engine. An alerting rule has the name and the
runbook of the rule of Weir for the same condition.

**What a value is.** Counters are sums over the rows of the tables since these begin. They continue
when the exporter restarts. If old rows have been deleted from a table, the counters of the next
exporter begin with the remaining rows, and Prometheus sees a reset. Gauges are of the newest window
or check. Times of windows are event time: a warehouse of last year has the metrics of last year.

**Names.** `pulsar_` and `kafka_` names are upstream's, so that the same queries work on brokers and
on Weir; "counter as gauge" is a counter that upstream exposes with type gauge. The dots of an
OpenTelemetry name are underscores. KIP-936 defines attributes of a JMX bean, which stand here as
exporters of JMX write them. Everything else begins with `weir_` and is in base units.
`publishRateLimitedTimes` is a field of the topic stats, not a metric: the view `throttle_metrics`
has it.

**Passed on:** `pulsar_storage_backlog_quota_check_duration_seconds` is the brokers' own, as
`reconcile` read it last. In a broker a check is a pass over its topics that reads from disk; in
Weir it is a timer inside a micro-batch.

**Not exported:** `pulsar_broker_throttled_connections_global_limit` and the dispatch metrics of
PIP-406, which follow from limits that Weir does not evaluate; `pulsar_ml_cache_pool_*`, the memory
that slices of the cache hold.

**How many series.** Metrics marked "bounded" have series only for entities that are near a quota,
breach one or are paused. An entity appears when it uses half of a quota (`share`, 0.5), or when its
backlog is predicted to reach a quota within an hour. It disappears an hour (`idle_s`) of event time
after it last did or last breached. At most 100 (`top`) of a kind have series: those that breached
most (culprits before their victims), then those nearest to their quota. The others are summed as
`other`. An increment is counted in one place only: an entity that gets series after it was part of
`other` begins at 0. `weir_exporter_entities` is the number of both.

**Reading.** The warehouse is read every 15 s (`refresh_s`), only the files of new commits; a scrape
returns the result of the last reading and reads nothing. `weir_exporter_up` is 0 and
`weir_exporter_errors_total` counts while there is no warehouse, or a part of it cannot be read; the
cause is logged once, and the other parts are read. With `--once` the exit code is 2 then.

**Sums over labels.** `pulsar_storage_backlog_quota_exceeded_evictions_total` is exported by topic
and by namespace, as brokers do: add `{topic!=""}` or `{topic=""}` to a query that sums.
"""


def render() -> str:
    """The whole page."""
    return "\n".join([HEAD, *map(_section, SECTIONS)])


def _section(section: MetricsSection) -> str:
    lines = [
        f"## {section.title}",
        "",
        "| metric | kind | labels | meaning | from |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in section.definitions:
        kind = f"{one.kind}, bounded" if one.bounded else one.kind
        names = ", ".join(f"`{name}`" for name in one.labels) or "none"
        source = f"`{one.source}`" if one.source in (*TABLES, *VIEWS) else one.source
        lines.append(f"| `{one.name}` | {kind} | {names} | {one.meaning} | {source} |")
    return "\n".join([*lines, ""])
