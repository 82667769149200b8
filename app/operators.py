"""The jobs that this version runs: name, core, route and tables of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from app.pack import Route
from app.tables import written_tables
from state.job import Job
from state.rate_limits.operator import RateLimits

if TYPE_CHECKING:
    from app.settings import Settings

CORES = {"rate_limits": RateLimits}


@dataclass(frozen=True)
class Operator:
    """One named job with the configuration it runs under."""

    job: Job
    route: Route
    tables: tuple[str, ...]
    constants: dict[str, pa.Scalar]
    """Columns that are the same for every output row of the job."""


def operators(settings: Settings, jobs: Sequence[str]) -> dict[str, Operator]:
    """The operators of some jobs, configured."""
    documents = sorted(json.dumps(d, sort_keys=True) for d in settings.policy_dicts())
    found = {}
    for name in jobs:
        params = settings.job_params(name)
        core = CORES[name](params, documents)
        tables = written_tables(name, tuple(params["extra_outputs"]))
        switches = sorted(settings.switches(name).items())
        found[name] = Operator(
            core, Route(core.columns, core.key), tuple(t.name for t in tables),
            {
                "job": pa.scalar(name),
                "switches": pa.scalar(switches, pa.map_(pa.string(), pa.string())),
                "params_hash": pa.scalar(settings.params_hash(name)),
            },
        )
    return found
