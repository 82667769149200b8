"""The jobs that this version runs: name, core, route and tables of each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from app.ingest.payloads import STAGED, WHOLE, Files, Payloads
from app.ingest.routing import Route
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


def operators(
    settings: Settings, jobs: Sequence[str], in_stream: bool = False
) -> dict[str, Operator]:
    """The operators of some jobs, configured; those `in_stream` may write files."""
    documents = sorted(json.dumps(d, sort_keys=True) for d in settings.policy_dicts())
    found = {}
    for name in jobs:
        job, params = DECLARED[name], settings.job_params(name)
        tables = [table.name for table in job.written(params["extra_outputs"])]
        switches = sorted(settings.switches(name).items())
        assembles = job.payloads is not None and bool(params[job.payloads])
        payloads = _payloads(settings, params) if assembles and in_stream else None
        if payloads is not None:
            tables += [STAGED, RELEASES]
        found[name] = Operator(
            job.core(params, documents, payloads.stage if payloads else None),
            Route(job.columns, job.key, assembles, payloads, job.everywhere),
            tuple(tables),
            {
                "job": pa.scalar(name),
                "switches": pa.scalar(switches, pa.map_(pa.string(), pa.string())),
                "params_hash": pa.scalar(settings.params_hash(name)),
            },
            payloads,
        )
    return found


def _payloads(settings: Settings, params: Mapping[str, Any]) -> Payloads:
    storage = {} if local_path(settings.warehouse) else settings.storage()
    return Payloads(
        Files(path_in(settings, STAGED), storage), Files(path_in(settings, WHOLE), storage),
        params["inline_payload_bytes"], params["max_payload_bytes"],
    )
