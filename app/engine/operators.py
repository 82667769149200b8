"""The jobs of this version as operators: name, core, route and tables of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from app.engine import assignment
from app.engine.payloads import STAGED, WHOLE, Files, Payloads
from app.engine.policy_versions import ShadowStamp, Stamp
from app.engine.routing import Route
from app.sources.clocks import ClockLimits
from app.tables import policy_log
from app.tables.definitions import TABLES
from app.tables.policy_log import PolicyLog, ShadowLog, texts
from app.tables.small_files import local_path, path_in
from state.engine.documents import Configured
from state.engine.job import Job
from state.engine.payloads import RELEASES
from state.engine.shadows import Shadow, WithShadows
from state.jobs import DECLARED

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings
    from state.engine.declaration import Declaration


@dataclass(frozen=True)
class Operator:
    """One named job with the configuration it runs under."""

    job: Job
    route: Route
    tables: tuple[str, ...]
    constants: dict[str, pa.Scalar]
    """Columns that are the same for every output row of the job."""
    payloads: Payloads | None = None
    """Where message payloads wait; None unless they are assembled and files can be written."""
    stamp: Stamp = field(default_factory=Stamp)
    """The `params_hash` of rows; it changes with the policies."""
    shadows: Mapping[str, Shadow] = field(default_factory=dict)
    """Those beside the job, by name."""
    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    """The `params_hash` of the rows of each shadow."""

    def stamp_of(self, table: str) -> Stamp:
        """The `params_hash` of the rows of one of the job's tables."""
        return ShadowStamp(self.stamps) if TABLES[table].live else self.stamp


def limits_of(settings: Settings) -> ClockLimits:
    """How far apart the clocks of the fleet may be."""
    return ClockLimits(settings.max_future_ms, settings.clock_skew_ms)


def operators(
    settings: Settings,
    jobs: Sequence[str],
    in_stream: bool = False,
    log: PolicyLog | None = None,
    shadows: Mapping[str, ShadowLog] | None = None,
) -> dict[str, Operator]:
    """The configured operators of some jobs. Only those `in_stream` may write files.

    With the `log` of a query they judge by its policy versions, each from its time on. A shadow
    applies to the jobs that have tables for shadows.
    """
    documents = texts(settings.policy_dicts() if log is None else log.first)
    found = {}
    for name in jobs:
        job, params = DECLARED[name], settings.job_params(name)
        if in_stream:  # a replay leaves out what the stream refused
            params["clock_skew_ms"] = settings.clock_skew_ms
        tables = [table.name for table in job.written(params["extra_outputs"])]
        params_hash = settings.params_hash(name, None if log is None else log.last)
        switches = sorted(settings.switches(name).items())
        assembles = job.payloads is not None and bool(params[job.payloads])
        payloads = _payloads(settings.location, params) if assembles and in_stream else None
        if payloads is not None:
            tables += [STAGED, RELEASES]
        core = job.core(params, documents, payloads.stage if payloads else None)
        beside: list[Shadow] = []
        if job.shadow_tables:
            beside = [_shadow(job, params, *one) for one in (shadows or {}).items()]
            names = {table.live or "": table.name for table in job.shadow_tables}
            core = WithShadows(core, names, beside, Configured(documents))
            tables += names.values() if beside else ()
        if log is not None:
            core.follow(log.versions)
        found[name] = Operator(
            core,
            Route(job.columns, job.key, assembles, payloads, job.everywhere),
            tuple(tables),
            {
                "job": pa.scalar(name),
                "switches": pa.scalar(switches, pa.map_(pa.string(), pa.string())),
                "params_hash": pa.scalar(params_hash),
            },
            payloads,
            Stamp(() if log is None else log.hashes(name, params_hash)),
            {one.life[0]: one for one in beside},
            {
                shadow: Stamp(own.log.hashes(name, settings.params_hash(name, own.log.last)))
                for shadow, own in (shadows or {}).items()
            },
        )
    return found


def _shadow(job: Declaration, params: Mapping[str, Any], name: str, own: ShadowLog) -> Shadow:
    documents = texts(own.log.first)
    core = job.core({**params, **job.what_if}, documents)
    shadow = Shadow((name, own.batch), core, Configured(documents))
    shadow.follow(own.log.versions)
    return shadow


def live_logs(warehouse: Location, jobs: Sequence[str]) -> dict[str, PolicyLog | None]:
    """By job, the policy versions that its query has judged by; None if it has judged by none."""
    known = assignment.known(warehouse)
    queries = {job: query for query, every in known.items() for job in every}
    return {
        job: policy_log.load(warehouse, queries[job]) if job in queries else None for job in jobs
    }


def live_operators(settings: Settings, jobs: Sequence[str]) -> dict[str, Operator]:
    """The operators of some jobs under the policy versions that their queries have judged by, each
    from its time on; under the configured policies if no query has judged.
    """
    found: dict[str, Operator] = {}
    for job, log in live_logs(settings.location, jobs).items():
        found |= operators(settings, [job], log=log)
    return found


def _payloads(warehouse: Location, params: Mapping[str, Any]) -> Payloads:
    storage = {} if local_path(warehouse.uri) else warehouse.storage()
    return Payloads(
        Files(path_in(warehouse, STAGED), storage),
        Files(path_in(warehouse, WHOLE), storage),
        params["inline_payload_bytes"],
        params["max_payload_bytes"],
    )
