"""The jobs that this version runs: name, core, route and tables of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from app.ingest.payloads import STAGED, WHOLE, Files, Payloads
from app.ingest.routing import Route
from app.stream import assignment
from app.stream.policy_versions import Stamp
from app.warehouse import policy_log
from app.warehouse.policy_log import PolicyLog, texts
from app.warehouse.small_files import local_path, path_in
from state.chunks.operator import RELEASES
from state.engine.job import Job
from state.jobs import DECLARED

if TYPE_CHECKING:
    from app.config.settings import Settings


@dataclass(frozen=True)
class Operator:
    """One named job with the configuration it runs under."""

    job: Job
    route: Route
    tables: tuple[str, ...]
    constants: dict[str, pa.Scalar]
    """Columns that are the same for every output row of the job."""
    payloads: Payloads | None = None
    """Where payloads of messages wait, if they are assembled and files can be written."""
    stamp: Stamp = field(default_factory=Stamp)
    """The `params_hash` of rows where policies have changed."""


def operators(
    settings: Settings, jobs: Sequence[str], in_stream: bool = False,
    log: PolicyLog | None = None,
) -> dict[str, Operator]:
    """The operators of some jobs, configured; those `in_stream` may write files.

    With the `log` of a query they judge by its policies, each from its time on.
    """
    documents = texts(settings.policy_dicts() if log is None else log.first)
    found = {}
    for name in jobs:
        job, params = DECLARED[name], settings.job_params(name)
        tables = [table.name for table in job.written(params["extra_outputs"])]
        switches = sorted(settings.switches(name).items())
        assembles = job.payloads is not None and bool(params[job.payloads])
        payloads = _payloads(settings, params) if assembles and in_stream else None
        if payloads is not None:
            tables += [STAGED, RELEASES]
        core = job.core(params, documents, payloads.stage if payloads else None)
        if log is not None:
            core.follow(log.versions)
        found[name] = Operator(
            core,
            Route(job.columns, job.key, assembles, payloads, job.everywhere),
            tuple(tables),
            {
                "job": pa.scalar(name),
                "switches": pa.scalar(switches, pa.map_(pa.string(), pa.string())),
                "params_hash": pa.scalar(
                    settings.params_hash(name, None if log is None else log.last)
                ),
            },
            payloads,
            Stamp(() if log is None else log.hashes(settings, name)),
        )
    return found


def live_logs(settings: Settings, jobs: Sequence[str]) -> dict[str, PolicyLog | None]:
    """By job the policies that its query has judged by; None where none has."""
    known = assignment.known(settings)
    queries = {job: query for query, every in known.items() for job in every}
    return {
        job: policy_log.load(settings, queries[job]) if job in queries else None for job in jobs
    }


def live_operators(settings: Settings, jobs: Sequence[str]) -> dict[str, Operator]:
    """The operators of some jobs under the policies that their queries have judged by, each version
    from its time on; under those of the configuration where no query has judged."""
    found: dict[str, Operator] = {}
    for job, log in live_logs(settings, jobs).items():
        found |= operators(settings, [job], log=log)
    return found


def _payloads(settings: Settings, params: Mapping[str, Any]) -> Payloads:
    storage = {} if local_path(settings.warehouse) else settings.storage()
    return Payloads(
        Files(path_in(settings, STAGED), storage), Files(path_in(settings, WHOLE), storage),
        params["inline_payload_bytes"], params["max_payload_bytes"],
    )
