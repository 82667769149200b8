"""The configuration as pydantic models: unknown keys are refused, every job gets its parameters.

`configs/weir.yaml` documents every key. Text such as `${env:NAME}` in reader and storage options
stays as written here; `resolved` replaces it where a connection is opened, so that
no secret is ever printed, hashed or logged.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
    model_serializer,
    model_validator,
)

from app.archive_names import ARCHIVE, WRITES
from app.config.alerts import AlertSettings
from app.config.base import Milliseconds, Model, Positive, as_text, in_unit, in_units, shown
from app.config.documents import cause
from app.config.forecast import ForecastSettings
from app.config.levels import compiled
from app.config.location import Location, require_reached
from app.config.maintenance import MaintenanceSettings
from app.config.metrics import MetricsSettings
from app.config.owners import Owner, owner_documents
from app.config.policy_files import shadows_written, written
from app.config.quality import QualitySettings
from app.config.reading import describe, merge, read_yaml
from app.config.reconcile import ReconcileSettings
from app.config.source import POLLED, SourceSettings, listed
from app.config.throttle_feed import ThrottleFeedSettings
from app.errors import UserError, did_you_mean
from app.terminal.program import PROGRAM
from app.terminal.secrets import without_secrets
from state.engine.parameters import Parameters
from state.engine.table import CAN_WAIT_MS, LIVE
from state.jobs import DECLARED, JOBS

_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")
"""delta-rs decodes it, and does not support a path with a `[`."""
GATHERING = tuple(
    dict.fromkeys(
        [
            *WRITES,
            *(t.name for job in DECLARED.values() for t in (*job.tables, *job.shadow_tables)),
        ]
    )
)
"""Tables whose rows may gather over several micro-batches."""

JobParameters = TypeVar("JobParameters", bound=Parameters)
_SHADOW = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")

NO_SOURCE = (
    "source: is missing (the origin of the records)\n"
    "--config FILE names a configuration with a source; README.md has examples, and "
    f"`{PROGRAM} demo` needs no configuration"
)


IN_STORE_MS = 30_000
"""Time between the starts of two micro-batches in an object store."""
SHARDS_PER_PARTITION = 2
"""With fewer, a partition could have no work if names spread unevenly; each more costs every
micro-batch some milliseconds per job.
"""


class PolicyDocument(Model):
    """Limits of one scope and name (event contract, section 5); see `app.config.policies`."""

    scope: str
    name: str
    client_id: str | None = None
    limits: dict[str, Any]

    @model_serializer(mode="wrap")
    def _plain(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The document, without a client id that it has not."""
        return {key: value for key, value in plain(self).items() if value is not None}


def _feeds(document: Any) -> Any:
    if isinstance(document, tuple):  # as `listed` has left it
        return document
    return tuple(feed for _, feed in listed(document))


class _Common(Model):
    """Settings of the whole application, shared by all jobs."""

    warehouse: str = Field(default="weir-warehouse", min_length=1)
    source: Annotated[tuple[SourceSettings, ...], BeforeValidator(_feeds)] = ()
    queries: list[list[str]] = []
    shards: Annotated[int, Field(ge=1, le=4096)] | None = None
    partitions: Positive | None = None
    trigger_ms: Milliseconds | None = None
    commit_interval_ms: dict[str, Milliseconds] = {}
    archive_payload: bool = False
    storage_options: dict[str, str] = {}
    allowed_lateness_ms: Milliseconds = 500
    idle_advance_ms: Positive = 10_000
    max_future_ms: Milliseconds = 3_600_000
    clock_skew_ms: Milliseconds = 10_000
    idle_state_ms: Milliseconds = 3_600_000
    stats_window_ms: Positive = 60_000


if TYPE_CHECKING:
    _WithJobs = _Common
else:
    _WithJobs = create_model(
        "_WithJobs",
        __base__=_Common,
        **{
            job.name: (Annotated[job.parameters, BeforeValidator(in_units)], job.parameters())
            for job in DECLARED.values()
        },
    )
    """A section for each job, named after it."""


class Settings(_WithJobs):
    """The whole configuration."""

    throttle_feed: ThrottleFeedSettings | None = None
    metrics: MetricsSettings | None = None
    reconcile: ReconcileSettings | None = None
    quality: QualitySettings = QualitySettings()
    forecast: ForecastSettings = ForecastSettings()
    alerts: AlertSettings = AlertSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    owners: list[Owner] = []
    owner_files: list[str] = []
    policies: list[PolicyDocument] = []
    policy_files: list[str] = []
    shadows: dict[str, list[PolicyDocument]] = {}

    _text = field_validator("storage_options", mode="before")(as_text)

    @field_validator("quality", "forecast", "alerts", "maintenance", mode="before")
    @classmethod
    def _off(cls, section: Any) -> Any:
        """null switches a section off; the commands of the same name still work."""
        return {"interval_ms": None} if section is None else section

    @field_validator("commit_interval_ms", mode="before")
    @classmethod
    def _intervals(cls, found: Any) -> Any:
        """Durations as milliseconds; a single one applies to all tables."""
        if isinstance(found, dict):
            return {name: in_unit("_ms", value) for name, value in found.items()}
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise ValueError(
                f"{found!r} is neither a duration such as 10s nor a mapping of tables to durations"
            )
        return dict.fromkeys(GATHERING, found)

    @field_validator("commit_interval_ms")
    @classmethod
    def _known_tables(cls, found: dict[str, int]) -> dict[str, int]:
        for name in found:
            if name not in GATHERING:
                hint = did_you_mean(name, GATHERING)
                raise ValueError(f"{name}: is not a table whose rows can wait ({hint})")
        return found

    @field_validator("shadows")
    @classmethod
    def _safe_names(cls, found: dict[str, list[PolicyDocument]]) -> dict[str, list[PolicyDocument]]:
        for name in found:
            if not _SHADOW.fullmatch(name) or name == LIVE:
                raise ValueError(
                    f"{name!r} is not a name of a shadow (allowed: 1 to 40 lower-case letters,"
                    f" digits, _ and -, a letter or digit first, but not {LIVE})"
                )
        return found

    @field_validator("warehouse")
    @classmethod
    def _plain_path(cls, warehouse: str) -> str:
        for sign, found in (("[", "[" in warehouse), ("%XX", _ESCAPED.search(warehouse))):
            if found:
                raise ValueError(
                    f"{warehouse!r} has {sign} in it, which is not safe for tables; take "
                    "another path (allowed: any path without [ and without % before two digits)"
                )
        require_reached(warehouse)
        return warehouse

    @field_validator("queries")
    @classmethod
    def _known_jobs(cls, groups: list[list[str]]) -> list[list[str]]:
        named = [job for group in groups for job in group]
        if not groups or not all(groups):
            raise ValueError(f"is empty; write groups of jobs, for example [[{JOBS[0]}]]")
        if not set(named) - {ARCHIVE}:
            raise ValueError(f"names no job (allowed: {', '.join(JOBS)})")
        for job in named:
            if job not in (*JOBS, ARCHIVE):
                raise ValueError(f"{job!r} is not a job (allowed: {', '.join((*JOBS, ARCHIVE))})")
            if named.count(job) > 1:
                raise ValueError(f"{job!r} is in more than one group; it runs once")
        return groups

    @field_validator("throttle_feed")
    @classmethod
    def _has_commands(
        cls, feed: ThrottleFeedSettings | None, info: ValidationInfo
    ) -> ThrottleFeedSettings | None:
        for name, job in DECLARED.items() if feed is not None else ():
            if job.commands is None or name not in info.data:  # absent: its section is refused
                continue
            for parameter, needed in job.commands.items():
                value = getattr(info.data[name], parameter)
                if value not in needed:
                    raise ValueError(
                        f"there are no commands with {name}.{parameter} {value} (allowed:"
                        f" {', '.join(needed)})"
                    )
        return feed

    @field_validator("source")
    @classmethod
    def _fit_together(cls, feeds: tuple[SourceSettings, ...]) -> tuple[SourceSettings, ...]:
        streamed = [feed.format for feed in feeds if not feed.is_polled]
        if streamed[1:]:
            raise ValueError(
                f"{' and '.join(streamed)}: a run has one streamed source (allowed beside it:"
                f" {', '.join(POLLED)})"
            )
        titles = [feed.title for feed in feeds if feed.is_polled]
        for title in titles:
            if titles.count(title) > 1:
                raise ValueError(f"{title} is there twice (cluster: a name for each cluster)")
        return feeds

    @model_validator(mode="after")
    def _has_queries(self) -> Settings:
        if not self.queries:
            fed = [
                name
                for name, job in DECLARED.items()
                if any(feed.feeds(job.fed_by, job.by_default) for feed in self.source)
                or (not self.source and job.by_default)
            ]
            self.__dict__["queries"] = [fed]  # not as if the document had named them
        return self

    @model_validator(mode="after")
    def _has_brokers(self) -> Settings:
        if self.reconcile is None:
            return self
        if self.reconcile.brokers and self.polls_kafka:
            raise ValueError(
                "reconcile.brokers: is not read with source.format kafka_groups (allowed: no"
                " brokers; the cluster of the source is compared)"
            )
        observed = any(DECLARED[job].observed for job in self.jobs)
        if self.reconcile.brokers or self.polls_kafka or observed:
            return self
        raise ValueError(
            "reconcile.brokers: is missing (allowed: host:port of each broker and its address)"
        )

    def section(self, parameters: type[JobParameters]) -> JobParameters:
        """The section of the job whose parameters are of a class."""
        (name,) = (job.name for job in DECLARED.values() if job.parameters is parameters)
        section: JobParameters = getattr(self, name)
        return section

    @property
    def polls_kafka(self) -> bool:
        """Whether a feed polls groups of Kafka."""
        return any(feed.format == "kafka_groups" for feed in self.source)

    @property
    def feeds(self) -> tuple[SourceSettings, ...]:
        """The feeds of the source; a UserError if the configuration has none."""
        if not self.source:
            raise UserError(NO_SOURCE)
        return self.source

    @property
    def feed(self) -> SourceSettings:
        """The streamed source, or the first feed; a UserError if the configuration has none."""
        return self.streamed or self.feeds[0]

    @property
    def streamed(self) -> SourceSettings | None:
        """The source that is read as records come; None if every feed is polled."""
        return next((feed for feed in self.source if not feed.is_polled), None)

    @property
    def polled(self) -> tuple[SourceSettings, ...]:
        """The feeds that the driver polls."""
        return tuple(feed for feed in self.source if feed.is_polled)

    @property
    def names_jobs(self) -> bool:
        """Whether the configuration names its jobs; otherwise they are those of its feeds."""
        return "queries" in self.model_fields_set

    @property
    def jobs(self) -> tuple[str, ...]:
        """Every job of every query, in the order of the configuration."""
        return tuple(job for group in self.queries for job in group if job != ARCHIVE)

    @property
    def groups(self) -> list[list[str]]:
        """What each query runs: its jobs, and the archive, which is in the first group if `queries`
        does not name it.
        """
        at = next((at for at, group in enumerate(self.queries) if ARCHIVE in group), 0)
        return [
            [*(job for job in group if job != ARCHIVE), *([ARCHIVE] if number == at else [])]
            for number, group in enumerate(self.queries)
        ]

    @property
    def pause_ms(self) -> int:
        """Time between the starts of two micro-batches; in an object store each costs requests."""
        usual = IN_STORE_MS if "://" in self.warehouse.removeprefix("file://") else 0
        return usual if self.trigger_ms is None else self.trigger_ms

    @property
    def archive_interval_ms(self) -> int:
        """Time over which records gather for one commit of the archive."""
        return self.commit_interval_ms.get("events", max(CAN_WAIT_MS, self.pause_ms))

    @property
    def shard_count(self) -> int:
        """Shards of each core, if the warehouse does not define the number."""
        return shards_for(self.partitions or os.cpu_count() or 1, self.shards)

    def window_end_ms(self, ms: int) -> int:
        """The end of the window of statistics in which a time lies (ms since the epoch)."""
        return (ms // self.stats_window_ms + 1) * self.stats_window_ms

    def policy_dicts(self) -> list[dict[str, Any]]:
        """The configured policies in the form that jobs take, each scope and name once. Those of
        single names are merged with the patterns that match them; see `app.config.levels`.
        """
        return compiled([policy.model_dump() for policy in self.policies])

    def shadow_dicts(self) -> dict[str, list[dict[str, Any]]]:
        """The policies of each shadow in the form that jobs take."""
        return {
            name: compiled([policy.model_dump() for policy in policies])
            for name, policies in self.shadows.items()
        }

    def job_settings(self, job: str) -> Parameters:
        """The section of a job."""
        own: Parameters = getattr(self, job)
        return own

    def job_params(self, job: str) -> dict[str, Any]:
        """Resolved parameters of a job: the shared ones and its own."""
        shared = ("allowed_lateness_ms", "idle_advance_ms", "idle_state_ms", "stats_window_ms")
        own = self.job_settings(job).params()
        return {**{key: getattr(self, key) for key in shared}, **own}

    def blind_after_gap_ms(self) -> dict[str, int]:
        """By job, the time (ms) for which it may differ from a broker after a gap in its records."""
        return {
            job: self.job_settings(job).blind_after_gap_ms(self.idle_state_ms) for job in self.jobs
        }

    def switches(self, job: str) -> dict[str, str]:
        """Version parameters in force for a job, as its output rows carry them."""
        params = self.job_params(job)
        return {
            name: ",".join(value) if isinstance(value, list) else str(value)
            for name, value in ((name, params.get(name, "")) for name in DECLARED[job].switches)
        }

    def params_hash(self, job: str, policies: list[dict[str, Any]] | None = None) -> str:
        """Hash of everything that determines a job's rows: parameters and configured policies, or
        others.
        """
        params = self.job_params(job)
        policies = self.policy_dicts() if policies is None else policies
        return digest({"job": job, "params": params, "policies": policies})

    def params_hashes(self, policies: list[dict[str, Any]] | None = None) -> dict[str, str]:
        """`params_hash` by job, of the jobs of every query."""
        return {job: self.params_hash(job, policies) for job in self.jobs}

    def config_hash(self) -> str:
        """Hash of the whole configuration with its policies, but without secrets of the
        environment.
        """
        plain = self.model_dump(exclude={"policy_files", "owner_files"})
        # Paths depend on where the command is started.
        del plain["alerts"]["rule_files"]
        return digest(plain)

    def display(self) -> dict[str, Any]:
        """The configuration for printing, secrets masked."""
        plain = self.model_dump(by_alias=True)
        shown_feeds = [feed.display() for feed in self.source]
        plain["source"] = shown_feeds if shown_feeds[1:] else next(iter(shown_feeds), None)
        plain["storage_options"] = shown(self.storage_options)
        if self.throttle_feed is not None:
            plain["throttle_feed"]["options"] = shown(self.throttle_feed.options)
        plain["alerts"] = self.alerts.display()
        if self.reconcile is not None:
            plain["reconcile"] = self.reconcile.display()
        found: dict[str, Any] = without_secrets(plain)
        return found

    @property
    def location(self) -> Location:
        """Where the warehouse is."""
        return Location(self.warehouse, self.storage_options)

    def __repr_args__(self) -> Any:
        return [
            (name, shown(self.storage_options) if name == "storage_options" else value)
            for name, value in super().__repr_args__()
        ]


def shards_for(partitions: int, shards: int | None) -> int:
    """Shards of each core for a number of shuffle partitions: the configured number, or two for
    each partition.
    """
    return shards or SHARDS_PER_PARTITION * partitions


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _as_written(mistakes: list[str], document: dict[str, Any]) -> list[str]:
    """Mistakes, those in a feed with the place of the feed in the document."""
    places = [place for place, _ in listed(document.get("source"))]
    return [
        re.sub(r"^source\[(\d+)\]", lambda found: f"source{places[int(found[1])]}", mistake)
        for mistake in mistakes
    ]


def _beside_file(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The document with the paths of its rule files relative to the working directory."""
    alerts = document.get("alerts")
    files = alerts.get("rule_files") if isinstance(alerts, dict) else None
    if not isinstance(alerts, dict) or not isinstance(files, list):
        return document
    paths = [str(folder / name) if isinstance(name, str) else name for name in files]
    return {**document, "alerts": {**alerts, "rule_files": paths}}


def load_settings(
    path: Path | None = None, overrides: dict[str, Any] | None = None, *, reads: bool = False
) -> Settings:
    """The configuration in `path` (defaults without one) with `overrides` merged over it.

    With `reads` it must name a source. Every mistake is collected; a UserError carries all of them
    and shows the first.
    """
    document = merge(read_yaml(path, dict) if path else {}, overrides or {})
    try:
        json.dumps(overrides, ensure_ascii=False, default=str).encode()
        return settings_of_document(document, path, reads=reads)
    except UnicodeEncodeError as error:
        raise UserError(f"{error.object[:200]!r}: is not UTF-8 text") from None
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read ({cause(error)})") from error


def settings_of_document(
    document: dict[str, Any], path: Path | None, *, reads: bool = False
) -> Settings:
    """The configuration that a document of the file `path` is."""
    where = str(path) if path else "configuration"
    folder = path.parent if path else Path()
    found = written(document, where, folder)
    shadows = shadows_written(document, where, folder)
    policies = found.kept
    mistakes = [str(m) for each in (found, *shadows.values()) for m in each.mistakes]
    document = _beside_file(document, folder)
    owners, wrong = owner_documents(document, folder)
    mistakes += wrong
    if isinstance(document.get("owners", []), list):
        document = {**document, "owners": owners}
    if isinstance(document.get("policies", []), list | str):
        document = {**document, "policies": policies}
    if shadows:
        document = {
            **document,
            "shadows": {
                name: shadows[name].kept if isinstance(listed, list | str) else listed
                for name, listed in document["shadows"].items()
            },
        }
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(document)
    except ValidationError as error:
        wrong = _as_written(describe(error, Settings), document)
        mistakes = [f"{where}: {text}" for text in wrong] + mistakes
    if reads and document.get("source") is None:
        if path is None:
            raise UserError(NO_SOURCE)
        formats = ", ".join(get_args(SourceSettings.model_fields["format"].annotation))
        mistakes = [f"{where}: source: is missing (source.format allowed: {formats})", *mistakes]
    if mistakes or settings is None:
        hint = f"{PROGRAM} validate --config {path}" if path else "validate"
        raise UserError.of_many(mistakes, hint)
    return settings
