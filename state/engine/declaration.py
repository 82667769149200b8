"""The declaration of a job: everything that the rest of Weir knows about it.

`state.jobs` lists the declarations. Classes are given by name, not imported: a core imports
compiled code, and its parameters import pydantic, which no Python worker needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from state.engine.job import Job
from state.engine.table import Output, Table, shadow_of
from state.events import MONO

if TYPE_CHECKING:
    from state.engine.parameters import Parameters

Stage = Callable[[pa.Table], str]
"""Writes payloads (cluster, topic, ledger_id, entry_id, payload) and returns their file."""


@dataclass(frozen=True)
class Declaration:
    """One job."""

    name: str
    """Also the name of its section of the configuration."""
    meaning: str
    """One line that says what the job does, with its proposal."""
    key: tuple[str, ...]
    """Columns of the key: its records are judged in one place, with one clock."""
    clock: str
    """Contract column that its decisions use: WALL or MONO of `state.events`."""
    kinds: tuple[str, ...]
    """Kinds of events that it reads."""
    columns: tuple[str, ...]
    """Contract columns that its blobs carry."""
    outputs: tuple[Output, ...]
    core_class: str
    """`module:class` of the core. Its arguments are the resolved parameters, the configured policy
    documents, and a `Stage` if payloads are staged.
    """
    parameters_class: str
    """`module:class` of the parameters (`state.engine.parameters`)."""
    everywhere: tuple[str, ...] = ()
    """Kinds whose records go to every shard, because they hold for many keys. Records of broker `*`
    always do.
    """
    fed_by: tuple[str, ...] = ()
    """Kinds of which it needs one: a feed without any of them gives it nothing to decide."""
    by_default: bool = True
    """Whether it runs on records of any kind unless `queries` names other jobs."""
    state_version: int = 1
    """Version of its states; a release reads one version."""
    polled: bool = False
    """Whether it reads the records of polled feeds, which have no monotonic clock."""
    observed: bool = False
    """Whether its records have numbers of the broker beside what it computes them from."""
    what_if: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of a replay or shadow under other policies: what was observed under the live ones
    does not hold for them."""
    payloads: str | None = None
    """Parameter that lets payloads of chunks travel to the core; None = they never do."""
    commands: Mapping[str, tuple[str, ...]] | None = None
    """Parameters, and the values with which the job has commands for the throttle feed: those of all
    parameters together."""

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """Its output tables, including those that are off by default."""
        return tuple(output.of(self.name) for output in self.outputs)

    @cached_property
    def shadow_tables(self) -> tuple[Table, ...]:
        """Its tables for rows under shadow policies; none if the job follows no policies."""
        return tuple(shadow_of(o.of(self.name)) for o in self.outputs if o.shadowed)

    def written(self, extra_outputs: Sequence[str] = ()) -> tuple[Table, ...]:
        """The tables that it writes: those on by default and those named by `extra_outputs`."""
        return tuple(t for t in self.tables if t.default or t.name in extra_outputs)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that identify a row of one of its tables."""
        times = ("ts_wall_ms", "ts_mono_ns") if self.clock == MONO else ("ts_wall_ms",)
        return (*self.key, *times, "row_no")

    @property
    def parameters(self) -> type[Parameters]:
        """The model of its section of the configuration."""
        found: type[Parameters] = _named(self.parameters_class)
        return found

    @property
    def switches(self) -> tuple[str, ...]:
        """Version parameters: the `switches` of its output rows."""
        from state.engine.parameters import SWITCH

        return self.parameters.marked(SWITCH)

    def core(
        self, params: Mapping[str, Any], policies: Sequence[str] = (), stage: Stage | None = None
    ) -> Job:
        """The core, created with resolved parameters and configured documents (JSON)."""
        made = _named(self.core_class)
        core: Job = made(params, policies) if stage is None else made(params, policies, stage)
        return core


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
