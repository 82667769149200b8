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
from threading import Thread
from typing import TYPE_CHECKING, Any

from app.config.policy_files import paths
from app.config.reading import read_yaml
from app.errors import UserError
from app.terminal.printable import printable

if TYPE_CHECKING:
    from app.config.settings import Settings

LOOK_S = 1.0
PATIENCE_S = 1.0
"""How long a look waits for the reading of an edit."""
GIT_S = 5.0
MOST_REASON = 500
"""Characters of the reason of a refusal."""
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
class Edit:
    """A valid configuration as it was reread."""

    others: dict[str, Any]
    """The settings that a run does not follow."""
    read: Read


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
        self._names: list[str] = []
        self._named_at: object = ()
        self._stamps = self._seen = self._look_at_files()
        self._next_s = time.monotonic() + LOOK_S
        self._running = self._others = _others(self.settings)
        self.now = self._read(self.settings)
        self._thread: Thread | None = None
        self._found: Edit | Exception | None = None

    def look(self) -> None:
        """Reread the files if they have changed and are now stable: unchanged since the last look.

        They are read in a thread, whatever they hold: a look takes `PATIENCE_S` at most, and a later
        one has the outcome.
        """
        if self._thread is None:
            if self.origin is None or time.monotonic() < self._next_s:
                return
            self._thread = Thread(target=self._work, name="policies", daemon=True)
            self._thread.start()
            self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            return
        self._next_s = time.monotonic() + LOOK_S
        found, self._thread, self._found = self._found, None, None
        if isinstance(found, Edit):
            self._take(found)
        elif isinstance(found, UserError):
            self._refuse(found.problems[0])
        elif found is not None:
            self._refuse(f"internal error: {found!r:.200}")

    @property
    def busy(self) -> bool:
        """Whether an edit is being read; a later look has the outcome."""
        return self._thread is not None

    def _work(self) -> None:
        try:
            self._found = self._edit()
        except Exception as error:  # noqa: BLE001 - no file of a user ends a running service
            self._found = error

    def _edit(self) -> Edit | None:
        """The configuration, if its files have changed and are stable."""
        before, self._seen = self._seen, self._look_at_files()
        if self.origin is None or self._seen != before or self._seen == self._stamps:
            return None
        self._stamps = self._seen
        found = self.origin.reload()
        return Edit(_others(found), self._read(found))

    def _take(self, edit: Edit) -> None:
        if edit.others != self._others:
            self._others = edit.others
            if changed := ", ".join(_changed(self._running, edit.others)):
                self.warn(
                    f"configuration: {changed}: needs a restart; a run follows only edits of "
                    "policies"
                )
        if (edit.read.policies, edit.read.shadows) != (self.now.policies, self.now.shadows):
            self.now = edit.read
            self.say("policies: read again; the next batch judges by them")

    def _refuse(self, reason: str) -> None:
        # A path may have bytes that no table can hold.
        reason = printable(reason.partition("\n")[0])[:MOST_REASON]
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
            if (stamp := _stamp(config)) != self._named_at:
                self._names = list(_names(read_yaml(config, dict)))
                self._named_at = stamp
            return [config, *(path for name in self._names for path in paths(name, config.parent))]
        except UserError:
            return [config]

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


def _names(document: Mapping[str, Any]) -> Iterator[str]:
    """The paths of policy files that a configuration has."""
    shadows = document.get("shadows")
    for listed in (
        document.get("policies"),
        document.get("policy_files"),
        *(shadows.values() if isinstance(shadows, dict) else ()),
    ):
        every = [listed] if isinstance(listed, str) else listed if isinstance(listed, list) else ()
        yield from (name for name in every if isinstance(name, str))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except (OSError, ValueError):
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
                errors="replace",
                timeout=GIT_S,
                check=False,
            )
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    changed = git("status", "--porcelain")
    return git("log", "-1", "--format=%an") or None if changed == "" else None
