"""What is asked of a replay on the command line, as settings and choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.config.documents import value_of
from app.config.policy_files import paths
from app.config.settings import Settings, load_settings
from app.errors import UserError, did_you_mean
from app.whatif.replay.choice import EVERYTHING, Choice, policy_key
from app.whatif.replay.event_span import FIRST_MS, LAST_MS, WHOLE, EventSpan
from app.whatif.replay.slices import RECORDS
from state.engine.globs import SCOPES, Limits, Source
from state.jobs import DECLARED, JOBS

SHARED = ("allowed_lateness_ms", "idle_advance_ms", "idle_state_ms", "stats_window_ms")
"""Parameters that all jobs share."""


@dataclass(frozen=True)
class ReplayRequest:
    """A replay: what of the archive, under what, and into which folder."""

    out: str
    jobs: tuple[str, ...] = ()
    """Without any: all of the configuration."""
    span: EventSpan = WHOLE
    warm_up_ms: int = 0
    choice: Choice = EVERYTHING
    after: str | None = None
    """The warehouse of a replay whose end is the begin of this one."""
    records: int = RECORDS
    """Records of a slice."""
    verify: bool = False
    changed: bool = False
    """Whether policies or parameters are others than those of the configuration."""
    throughout: bool = False
    """Whether the policies hold from the beginning, also where the run had others before them."""
    drain: bool = False
    """Whether clocks move behind the last record, to the end of its window."""
    command: str = "replay"
    option: str = "--out"
    """What it was asked by, and what its folder was given by."""

    def __post_init__(self) -> None:
        begin_ms, end_ms = self.span.begin_ms, self.span.end_ms
        if begin_ms >= end_ms:
            raise UserError("replay: --from is not before --to")
        if self.warm_up_ms and begin_ms == FIRST_MS:
            raise UserError("replay: --warm-up goes with --from")
        if self.after is not None and (begin_ms != FIRST_MS or self.warm_up_ms):
            raise UserError("replay: --after has its own begin: leave out --from and --warm-up")
        if self.drain and self.bounded:
            raise UserError("replay: --drain goes to the end of the archive: leave out --to")
        if self.verify and (self.changed or self.choice.filters):
            raise UserError(
                "replay: --verify compares with the live tables: leave out --policy, --param, "
                "--clusters, --tenants and --topics"
            )

    @property
    def bounded(self) -> bool:
        """Whether it ends before the archive does."""
        return self.span.end_ms != LAST_MS


def settings_of(
    config: Path | None, warehouse: str | None, policies: Sequence[Path], params: Sequence[str]
) -> Settings:
    """The configuration under other policy files and parameters (`job.key=value`); UserError for
    what is unknown or wrong."""
    overrides: dict[str, Any] = {}
    if warehouse:
        overrides["warehouse"] = warehouse
    if policies:
        files = [str(file) for path in policies for file in _files(path)]
        overrides |= {"policies": [], "policy_files": files}
    for text in params:
        _put(overrides, text)
    return load_settings(config, overrides)


def replaced_by(settings: Settings) -> dict[Source, Limits]:
    """The limits of the configured policies, by what they are about."""
    return {
        (d["scope"], d["name"]) if d["scope"] in SCOPES else policy_key(d): d["limits"]
        for d in settings.policy_dicts()
    }


def jobs_of(settings: Settings, text: str | None) -> tuple[str, ...]:
    """The jobs of a list separated by commas; all of the configuration without one."""
    if text is None:
        return settings.jobs
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in settings.jobs:
            raise UserError(
                f"--jobs {name}: is not a job of this configuration\n"
                f"allowed: {', '.join(settings.jobs)}"
            )
    return names


def _files(path: Path) -> list[Path]:
    """A policy file, or those in a folder or of a pattern."""
    found = paths(str(path.absolute()), Path())
    if not found:
        raise UserError(f"--policy {path}: names no files (a folder stands for its *.yaml)")
    for file in found:
        if not file.is_file():
            raise UserError(
                f"--policy {path}: does not exist (allowed: a file of policies, a "
                "folder of such files, or a pattern)"
            )
    return found


def _put(overrides: dict[str, Any], text: str) -> None:
    """Add a parameter to overrides."""
    name, equals, value = text.partition("=")
    job, dot, key = name.strip().partition(".")
    if not equals or not job:
        raise UserError(f"--param {text}: is not job.key=value")
    parsed = value_of(value, f"--param {text}")
    if not dot:
        if job not in SHARED:
            raise UserError(
                f"--param {text}: {job} is not shared by the jobs "
                f"(allowed: job.key=value, or one of {', '.join(SHARED)})"
            )
        overrides[job] = parsed
        return
    if job not in DECLARED:
        raise UserError(f"--param {text}: {job} is not a job ({did_you_mean(job, JOBS)})")
    fields = {(f.alias or n) for n, f in DECLARED[job].parameters.model_fields.items()}
    if key not in fields:
        raise UserError(
            f"--param {text}: {job} has no parameter {key} ({did_you_mean(key, sorted(fields))})"
        )
    overrides.setdefault(job, {})[key] = parsed
