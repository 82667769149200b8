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
from app.warehouse.tables import written_tables
from state.backlog.operator import Backlog
from state.chunks.operator import RELEASES, Chunks
from state.engine.job import Job
from state.entry_cache.operator import EntryCache
from state.producer_ids.operator import ProducerIds
from state.rate_limits.operator import RateLimits

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
        params = settings.job_params(name)
        tables = [t.name for t in written_tables(name, tuple(params["extra_outputs"]))]
        switches = sorted(settings.switches(name).items())
        assembles = bool(params.get("assemble_payload"))
        payloads = _payloads(settings) if assembles and in_stream else None
        core = _core(name, params, documents, payloads)
        if payloads is not None:
            tables += [STAGED, RELEASES]
        found[name] = Operator(
            core, Route(core.columns, core.key, assembles, payloads, core.everywhere),
            tuple(tables),
            {
                "job": pa.scalar(name),
                "switches": pa.scalar(switches, pa.map_(pa.string(), pa.string())),
                "params_hash": pa.scalar(settings.params_hash(name)),
            },
            payloads,
        )
    return found


def _core(
    name: str, params: Mapping[str, Any], documents: Sequence[str], payloads: Payloads | None
) -> Job:
    if name == "chunks":
        return Chunks(params, documents, payloads.stage if payloads else None)
    if name == "producer_ids":
        return ProducerIds(params, documents)
    if name == "backlog":
        return Backlog(params, documents)
    if name == "entry_cache":
        return EntryCache(params, documents)
    return RateLimits(params, documents)


def _payloads(settings: Settings) -> Payloads:
    storage = {} if local_path(settings.warehouse) else settings.storage()
    return Payloads(
        Files(path_in(settings, STAGED), storage), Files(path_in(settings, WHOLE), storage),
        settings.chunks.inline_payload_bytes, settings.chunks.max_payload_bytes,
    )
