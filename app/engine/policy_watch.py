"""Rereads the policies of the configuration when their files change.

An edit is taken if the whole configuration is valid. An invalid one leaves the policies in force
and is reported once.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.config.policy_files import paths
from app.config.reading import read_yaml
from app.errors import UserError

if TYPE_CHECKING:
    from app.config.settings import Settings

LOOK_S = 1.0
GIT_S = 5.0
Stamps = dict[str, tuple[int, int] | None]
"""Modification time (ns) and size of each file; None for a missing file."""


@dataclass(frozen=True)
class Origin:
    """Where the configuration of a run comes from."""

    config: Path
    reload: Callable[[], Settings]
    """Rereads the configuration; raises UserError for an invalid one."""


@dataclass(frozen=True)
class Read:
    """Policies as they were read."""

    policies: list[dict[str, Any]]
    shadows: dict[str, list[dict[str, Any]]]
    read_ms: int
    author: str | None = None


@dataclass(frozen=True)
class Refusal:
    """An edit that was refused."""

    read_ms: int
    reason: str


@dataclass
class PolicyWatch:
    """The current policies of the files; without an origin they never change."""

    settings: Settings
    say: Callable[[str], None]
    warn: Callable[[str], None]
    origin: Origin | None = None
    refused: list[Refusal] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stamps = self._seen = self._look_at_files()
        self._next_s = time.monotonic() + LOOK_S
        self._running = self._others = _others(self.settings)
        self.now = self._read(self.settings)

    def look(self) -> None:
        """Reread the files if they have changed and are now stable: unchanged since the last look."""
        if self.origin is None or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + LOOK_S
        before, self._seen = self._seen, self._look_at_files()
        if self._seen != before or self._seen == self._stamps:
            return
        self._stamps = self._seen
        try:
            found = self.origin.reload()
        except UserError as error:
            self._refuse(error.problems[0])
            return
        except Exception as error:  # noqa: BLE001 - no file of a user ends a running service
            self._refuse(f"internal error: {error!r:.200}")
            return
        if (others := _others(found)) != self._others:
            self._others = others
            if changed := ", ".join(_changed(self._running, others)):
                self.warn(
                    f"configuration: {changed}: needs a restart; a run follows only edits of "
                    "policies"
                )
        now = self._read(found)
        if (now.policies, now.shadows) != (self.now.policies, self.now.shadows):
            self.now = now
            self.say("policies: read again; the next batch judges by them")

    def _refuse(self, reason: str) -> None:
        self.refused.append(Refusal(_now_ms(), reason))
        self.warn(f"policies: the edit is refused, what was in force stays: {reason}")

    def _read(self, settings: Settings) -> Read:
        """The policies of a configuration, and those of the shadows that the run has."""
        shadows = {
            name: documents
            for name, documents in settings.shadow_dicts().items()
            if name in self.settings.shadows
        }
        return Read(settings.policy_dicts(), shadows, _now_ms(), self._author())

    def _files(self) -> list[Path]:
        """The configuration file and the policy files that it names."""
        if self.origin is None:
            return []
        config = self.origin.config
        try:
            document = read_yaml(config, dict)
            named: list[Any] = []
            for value in (
                document.get("policies"),
                document.get("policy_files"),
                *(document.get("shadows") or {}).values(),
            ):
                named += [value] if isinstance(value, str) else value or []
            found = [
                path
                for name in named
                if isinstance(name, str)
                for path in paths(name, config.parent)
            ]
        except (UserError, OSError, TypeError, AttributeError):
            return [config]
        return [config, *found]

    def _look_at_files(self) -> Stamps:
        return {str(path): _stamp(path) for path in self._files()}

    def _author(self) -> str | None:
        """Who committed the files of policies last, if git knows them as they are."""
        files = self._files()
        return _author(files[1:] or files)


def _others(settings: Settings) -> dict[str, Any]:
    """The settings that a run does not follow. Shards and partitions are those of the manifest."""
    found = settings.model_dump(exclude={"policies", "policy_files", "shards", "partitions"})
    return {**found, "shadows": sorted(settings.shadows)}


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The keys whose values differ, those of a section one by one."""
    for key in {**before, **now}:
        old, new = before.get(key), now.get(key)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            yield from (f"{key}.{name}" for name in _changed(old, new))
        else:
            yield key


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _author(files: Sequence[Path]) -> str | None:
    """The author of the last commit of some files. None without git, or if the files differ from
    the commit.
    """
    if not files:
        return None
    folder = files[0].absolute().parent
    names = [str(path.absolute()) for path in files]

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *words, "--", *names],
                capture_output=True,
                text=True,
                timeout=GIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    changed = git("status", "--porcelain")
    return git("log", "-1", "--format=%an") or None if changed == "" else None
