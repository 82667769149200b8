"""The publishes of the archive, by the name whose limit they are charged to.

DuckDB sorts them, on disk if there are many; memory holds the records of one name at a time.
Records that the job refused as late or repeated are left out. A digest is charged as one publish at
its end, as the job does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from app.errors import UserError
from app.read.relations import ANY_ORDER, Warehouse, connect
from app.whatif.replay.event_span import WHOLE, EventSpan
from app.whatif.replay.refused import REFUSED
from state.rate_limits.alone import CLOSE, PUBLISH, USE, Trace
from state.rate_limits.declaration import NAME as JOB

if TYPE_CHECKING:
    from app.jobs.rate_limits.whatif.owners import TopicOwners

Rate = Literal["messages", "bytes"]
LIMITS: Mapping[Rate, str] = {"messages": "publishRateInMsgs", "bytes": "publishRateInBytes"}
RATES: tuple[Rate, ...] = tuple(LIMITS)
BOTH = "both"
ROWS = 100_000
"""Rows that are read at once."""

# As in state.engine.order: a record follows a start of its broker whose wall time its own is not
# below; what repeats feed, broker, seq and time of another counts once.
RECORDS = """
CREATE TEMP TABLE records AS
WITH kept AS (
  SELECT cluster, broker, event_type, topic, partition, starts_with(source_feed, 'kafka') AS kafka,
    ts_wall_ms, ts_mono_ns, seq, cnx_id, coalesce(num_messages, 1) AS messages,
    coalesce(entry_bytes, 0) AS bytes, ledger_id, entry_id, source_offset,
    coalesce(publishes, 1) AS publishes
  FROM events ANTI JOIN (
    SELECT source_partition, source_offset FROM quarantine
    WHERE job = '{job}' AND reason_code IN ({late})
  ) USING (source_partition, source_offset)
  WHERE event_type IN ('publish', 'publish_digest', 'producer_created', 'producer_closed',
      'connection_closed', 'broker_started', 'gap')
    AND ts_mono_ns IS NOT NULL AND {span}
  QUALIFY row_number() OVER (
    PARTITION BY cluster, broker, source_feed, ts_mono_ns, seq,
      CASE WHEN seq IS NULL THEN (source_partition, source_offset) END
    ORDER BY topic NULLS FIRST, ledger_id NULLS FIRST, entry_id NULLS FIRST, source_offset) = 1
), starts AS (
  SELECT cluster, broker, ts_wall_ms, row_number() OVER (
      PARTITION BY cluster, broker ORDER BY ts_wall_ms, seq NULLS FIRST) AS start
  FROM kept WHERE event_type = 'broker_started' AND ts_wall_ms IS NOT NULL
), started AS (
  SELECT k.*, coalesce(s.start, 0) AS start FROM kept k
  ASOF LEFT JOIN starts s
    ON s.cluster = k.cluster AND s.broker = k.broker AND k.ts_wall_ms >= s.ts_wall_ms
), gaps AS (
  SELECT cluster, broker, start, ts_mono_ns, row_number() OVER (
      PARTITION BY cluster, broker, start ORDER BY ts_mono_ns, seq NULLS FIRST) AS gap
  FROM started WHERE event_type = 'gap'
), ends AS (
  SELECT cluster, broker, start, max(ts_mono_ns) AS end_ns FROM started GROUP BY ALL
)
SELECT r.*, coalesce(g.gap, 0) AS gap, e.end_ns FROM started r
JOIN ends e ON e.cluster = r.cluster AND e.broker = r.broker AND e.start = r.start
ASOF LEFT JOIN gaps g ON g.cluster = r.cluster AND g.broker = r.broker AND g.start = r.start
  AND r.ts_mono_ns >= g.ts_mono_ns
"""
TOPICS = """
SELECT DISTINCT cluster, topic, partition, kafka FROM records
WHERE event_type IN ('publish', 'publish_digest', 'producer_created', 'producer_closed')
  AND topic IS NOT NULL
"""
OWNED = """
CREATE TEMP TABLE owned AS
SELECT r.* EXCLUDE (topic, partition, kafka), o.topic, o.name, o.limiter,
  hash(r.cluster, r.broker, r.start, r.gap, r.cnx_id) AS cnx,
  hash(r.cluster, r.broker, r.start, r.gap) AS run
FROM records r JOIN owners o ON o.cluster IS NOT DISTINCT FROM r.cluster AND o.written = r.topic
  AND o.partition IS NOT DISTINCT FROM r.partition AND o.kafka = r.kafka
"""
# The topics of a connection: from the first record to the close of the last producer.
LEVELS = """
CREATE TEMP TABLE {table} AS
WITH spans AS (
  SELECT cnx, limiter, topic, min(ts_mono_ns) AS begin_ns, max(ts_mono_ns) AS last_ns,
    arg_max(event_type, (ts_mono_ns, coalesce(seq, 0))) AS last
  FROM owned GROUP BY ALL
), changes AS (
  SELECT cnx, limiter, begin_ns AS at_ns, 1 AS change FROM spans
  UNION ALL SELECT cnx, limiter, last_ns, -1 FROM spans WHERE last = 'producer_closed'
)
SELECT DISTINCT cnx, {key} at_ns,
  sum(change) OVER (PARTITION BY cnx {by} ORDER BY at_ns RANGE UNBOUNDED PRECEDING) AS topics
FROM changes
"""
FACTS = """
SELECT cluster, name, sum(publishes)::BIGINT AS publishes,
  count(*) FILTER (WHERE event_type = 'publish_digest') AS digests,
  coalesce(max(ts_wall_ms)::HUGEINT - min(ts_wall_ms),
    (max(ts_mono_ns)::HUGEINT - min(ts_mono_ns)) // 1000000) AS ms
FROM owned WHERE event_type IN ('publish', 'publish_digest') AND name IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
NAMED = """
WITH published AS (
  SELECT o.*, greatest(w.topics - own.topics, 0)::BIGINT AS others FROM owned o
  ASOF LEFT JOIN levels w ON w.cnx = o.cnx AND o.ts_mono_ns >= w.at_ns
  ASOF LEFT JOIN own_levels own ON own.cnx = o.cnx AND own.limiter = o.limiter
    AND o.ts_mono_ns >= own.at_ns
  WHERE o.event_type IN ('publish', 'publish_digest')
), closed AS (
  SELECT hash(cluster, broker, start, gap, cnx_id) AS cnx, ts_mono_ns, seq
  FROM records WHERE event_type = 'connection_closed'
), played AS (
  SELECT name, cluster, run, limiter, {publish} AS kind, ts_mono_ns, seq, topic, ledger_id,
    entry_id, source_offset, messages, bytes, cnx, others, end_ns, ts_wall_ms // 60000 AS minute
  FROM published
  UNION ALL
  SELECT name, cluster, run, limiter, {use}, ts_mono_ns, seq, topic, ledger_id, entry_id,
    source_offset, 0, 0, cnx, 0, end_ns, NULL FROM owned WHERE event_type = 'producer_created'
  UNION ALL
  SELECT p.name, p.cluster, p.run, p.limiter, {close}, c.ts_mono_ns, c.seq, '', NULL, NULL, NULL,
    0, 0, p.cnx, 0, p.end_ns, NULL
  FROM closed c JOIN (SELECT DISTINCT name, cluster, run, limiter, cnx, end_ns FROM published) p
    ON p.cnx = c.cnx
)
SELECT n.id, hash(run, limiter) AS limiter, kind, ts_mono_ns, messages, bytes, cnx, others,
  end_ns, coalesce(minute, -1) AS minute
FROM played p JOIN names n ON n.cluster IS NOT DISTINCT FROM p.cluster AND n.name = p.name
ORDER BY n.id, run, p.limiter, ts_mono_ns, seq NULLS FIRST, topic, ledger_id NULLS FIRST,
  entry_id NULLS FIRST, source_offset
"""


def required(text: str) -> tuple[Rate, ...]:
    """The scope of the limits; UserError for one that has no publish limit."""
    found = tuple(rate for rate in RATES if text in (rate, BOTH))
    if not found:
        raise UserError(f"--rate {text}: has no limit\nallowed: {', '.join(RATES)}, {BOTH}")
    return found


@dataclass(frozen=True)
class Named:
    """A name of a cluster, and the length of its history."""

    cluster: str
    name: str
    publishes: int
    digests: int
    length_ms: int
    """From its first publish to its last."""


class NamedTraces(NamedTuple):
    """A name and its records."""

    one: Named
    traces: Mapping[Rate, Trace]
    minutes: np.ndarray
    """Minute of each publish since the epoch; -1 of other records, and where it is not known."""


class History:
    """The records of an archive that publish limiters see."""

    def __init__(self, warehouse: Warehouse, owners: TopicOwners, span: EventSpan = WHOLE) -> None:
        """UserError without an archive, or without a publish in it."""
        warehouse.require()
        if warehouse.open("events") is None:
            raise UserError(
                "policy suggest publish: the archive is empty; run the job archive first"
            )
        self._connection = connect(warehouse, "events quarantine", config=ANY_ORDER)
        between = (
            "true"
            if span == WHOLE
            else (f"ts_wall_ms >= {span.begin_ms} AND ts_wall_ms < {span.end_ms}")
        )
        self._connection.execute(
            RECORDS.format(
                span=between,
                job=JOB,
                late=", ".join(f"'{c}'" for c in REFUSED),
            )
        )
        self._own(owners)
        for table, key, by in (("levels", "", ""), ("own_levels", "limiter,", ", limiter")):
            self._connection.execute(LEVELS.format(table=table, key=key, by=by))
        self.names = [Named(*row) for row in self._connection.execute(FACTS).fetchall()]
        if not self.names:
            raise UserError("policy suggest publish: the archive has no publishes to go by")

    def _own(self, owners: TopicOwners) -> None:
        rows = self._connection.execute(TOPICS).fetchall()
        found = [owners.of(*row) for row in rows]
        columns = list(zip(*rows, strict=True)) or [()] * 4
        written = {
            "cluster": pa.string(),
            "written": pa.string(),
            "partition": pa.int32(),
            "kafka": pa.bool_(),
        }
        self._connection.register(
            "owners",
            pa.table(
                {
                    **{
                        name: pa.array(column, kind)
                        for (name, kind), column in zip(written.items(), columns, strict=True)
                    },
                    "topic": pa.array([o.topic for o in found], pa.string()),
                    "name": pa.array([o.name for o in found], pa.string()),
                    "limiter": pa.array([o.limiter for o in found], pa.string()),
                }
            ),
        )
        self._connection.execute(OWNED)

    def traces(self, wanted: list[Named]) -> Iterator[NamedTraces]:
        """The records of some names, in their order, one name in memory at a time."""
        if not wanted:
            return
        self._connection.register(
            "names",
            pa.table(
                {
                    "id": pa.array(range(len(wanted)), pa.int64()),
                    "cluster": pa.array([one.cluster for one in wanted], pa.string()),
                    "name": pa.array([one.name for one in wanted], pa.string()),
                }
            ),
        )
        sql = NAMED.format(publish=PUBLISH, use=USE, close=CLOSE)
        held: list[pa.RecordBatch] = []
        for batch in self._connection.sql(sql).to_arrow_reader(ROWS):
            ids = batch.column("id").to_numpy()
            begin = 0
            for end in [*(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(ids)]:
                if held and held[-1].column("id")[0].as_py() != ids[begin]:
                    yield _trace(held, wanted)
                    held = []
                if end > begin:
                    held.append(batch.slice(begin, end - begin))
                begin = end
        if held:
            yield _trace(held, wanted)


def _trace(parts: list[pa.RecordBatch], wanted: list[Named]) -> NamedTraces:
    """A name, and its records with each amount."""
    rows = pa.Table.from_batches(parts)

    def column(name: str) -> np.ndarray:
        found: np.ndarray = rows.column(name).to_numpy()
        return found

    limiters = column("limiter")
    starts = np.concatenate([[0], np.flatnonzero(np.diff(limiters)) + 1, [len(limiters)]])
    cnx = np.unique(rows.column("cnx").fill_null(0).to_numpy(), return_inverse=True)[1]
    one = Trace(
        starts.astype(np.int64),
        column("kind").astype(np.int64),
        column("ts_mono_ns"),
        column(RATES[0]).astype(np.int64),
        cnx.astype(np.int64),
        rows.column("others").fill_null(0).to_numpy().astype(np.int64),
        column("end_ns"),
    )
    traces = {rate: one._replace(amount=column(rate).astype(np.int64)) for rate in RATES}
    return NamedTraces(wanted[rows.column("id")[0].as_py()], traces, column("minute"))
