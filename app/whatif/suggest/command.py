"""The command `policy suggest publish`: what is asked, searched, printed and written."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.errors import UserError
from app.terminal.moments import instant_of
from app.terminal.printable import printable
from app.warehouse.query import write_table
from app.whatif.replay.archive import FIRST_MS, LAST_MS, WHOLE, Span
from app.whatif.suggest import documents
from app.whatif.suggest.history import LIMITS, History, Named, Rate
from app.whatif.suggest.owners import SCOPES, Owners, Per
from app.whatif.suggest.search import (
    MOST,
    Point,
    curve,
    point,
    smallest,
    with_headroom,
)
from state.rate_limits.alone import Rules, Trace
from state.rate_limits.bucket import VERSIONS
from state.rate_limits.declaration import NAME as JOB

if TYPE_CHECKING:
    from app.config.settings import Settings

SHOWN = 20
NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class Asked:
    """What limits are suggested for, and how."""

    per: Per = "topic"
    rate: Rate = "messages"
    share: float = 0.01
    """Of a name's messages or bytes that may be throttled (0 to 1)."""
    headroom: float = 0.0
    """On top of the smallest limit, as a share of it."""
    min_publishes: int = 100
    min_history_ms: int = 300_000
    span: Span = WHOLE

    def __post_init__(self) -> None:
        if self.span.begin_ms >= self.span.end_ms:
            raise UserError("policy suggest publish: --from is not before --to")


@dataclass(frozen=True)
class Suggestion:
    """What a name needs in a cluster, and the limit of its document."""

    cluster: str
    name: str
    publishes: int
    total: float
    """Messages or bytes."""
    needed: int
    """The smallest limit that keeps the share in this cluster (per second)."""
    limit: int
    """The largest that any cluster needs, with headroom."""
    throttled_share: float
    pauses: int
    paused_s: float
    victim_s: float
    """What `limit` does."""
    curve: tuple[Point, ...] = field(repr=False, default=())

    def row(self) -> dict[str, Any]:
        """As a row of the table."""
        names = [key for key in self.__dataclass_fields__ if key != "curve"]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class LeftOut:
    """Names without a limit, and why."""

    reason: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """What was found, the largest limits first."""

    asked: Asked
    covers: str
    suggestions: tuple[Suggestion, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def documents(self) -> list[documents.Document]:
        """The policies, by name."""
        return self.limited({one.name: one.limit for one in self.suggestions})

    def limited(self, limits: dict[str, int]) -> list[documents.Document]:
        """The policies with other limits."""
        scope, key = SCOPES[self.asked.per], LIMITS[self.asked.rate]
        return [documents.document(scope, name, {key: limit})
                for name, limit in sorted(limits.items())]


def suggest(
    settings: Settings, asked: Asked, out: Path | None = None, page: Path | None = None,
    verify: bool = False, curves: bool = False, every: bool = False, as_json: bool = False,
) -> int:
    """Print the limits, write them as policies and as a page; 0, or 1 where `verify` finds that the
    job throttles more, or that a smaller limit would do."""
    documents.require_writable(out)
    if page is not None and not page.absolute().parent.is_dir():
        raise UserError(f"--page {page}: the folder {page.absolute().parent} does not exist")
    if JOB not in settings.jobs:
        raise UserError(f"policy suggest publish: the configuration does not run the job {JOB}")
    owners = Owners(settings, asked.per)
    found = find(settings, asked, owners)
    if page is not None:
        from app.whatif.suggest.page import write_page

        write_page(found, page)
    if out is not None and found.suggestions:
        documents.write(out, found.documents, _about(asked))
    broken = _broken(settings, found, owners) if verify else []
    if as_json:
        _print_json(found, broken if verify else None)
    else:
        _print(found, curves, every)
        for text in broken:
            print(printable(f"not verified: {text}"))
        if verify and found.suggestions and not broken:
            print("verified: the job over the archive keeps every share, and exceeds it with each"
                  " limit one smaller than the smallest")
        if out is not None:
            where = f"The policies are in {out}."
            print(where if found.suggestions else "No policies are written.")
        if page is not None:
            print(f"The page is in {page}.")
    return 1 if broken else 0


def find(settings: Settings, asked: Asked, owners: Owners) -> Found:
    """Search the archive for the limits."""
    history = History(settings, owners, asked.rate, asked.span)
    params = settings.job_params(JOB)
    rules = Rules(
        VERSIONS.index(params["tokenbucket"]), params["release_condition"] == "positive",
        int(params["idle_state_ms"]) * NS_PER_MS,
    )
    out: dict[str, list[str]] = {}
    wanted = []
    for one in history.names:
        reason = _too_little(one, asked) or documents.problem(SCOPES[asked.per], one.name)
        if reason is None:
            wanted.append(one)
        else:
            out.setdefault(reason, []).append(one.name)
    found: dict[Named, Suggestion] = {}
    limits: dict[str, int] = {}
    for one, trace in history.traces(wanted):
        needed = smallest(trace, asked.share, rules)
        if needed is None:
            out.setdefault("no limit of 64 bits lets enough of it pass", []).append(one.name)
            continue
        limit = with_headroom(needed, asked.headroom)
        limits[one.name] = max(limits.get(one.name, 0), limit)
        found[one] = _suggestion(one, trace, needed, limit, rules)
    # a document holds in every cluster
    raised = {one: s.needed for one, s in found.items() if s.limit < limits[one.name]}
    for one, trace in history.traces(list(raised)):
        found[one] = _suggestion(one, trace, raised[one], limits[one.name], rules)
    return Found(
        asked, _covers(asked),
        tuple(sorted(found.values(), key=lambda s: (-s.limit, s.name, s.cluster))),
        tuple(LeftOut(reason, tuple(sorted(set(names)))) for reason, names in out.items()),
    )


def _too_little(one: Named, asked: Asked) -> str | None:
    """Why a name has not enough history."""
    if one.publishes < asked.min_publishes:
        return f"fewer than {asked.min_publishes:,} publishes (--min-publishes)"
    if one.length_ms < asked.min_history_ms:
        return (f"less than {asked.min_history_ms / 1000:g} s between the first publish and the"
                " last (--min-history)")
    return None


def _suggestion(one: Named, trace: Trace, needed: int, limit: int, rules: Rules) -> Suggestion:
    at = point(trace, limit, rules)
    return Suggestion(
        one.cluster, one.name, one.publishes, trace.total, needed, limit, at.throttled_share,
        at.pauses, at.paused_s, at.victim_s, tuple(curve(trace, needed, rules, limit)),
    )


def _broken(settings: Settings, found: Found, owners: Owners) -> list[str]:
    """Where the job over the archive does not do what the suggestions say, in words."""
    from app.whatif.suggest.verify import throttled

    asked, share = found.asked, found.asked.share
    smallest_of: dict[str, int] = {}
    for one in found.suggestions:
        smallest_of[one.name] = max(smallest_of.get(one.name, 0), one.needed)

    def shares(limits: dict[str, int]) -> dict[tuple[str, str], float]:
        return throttled(
            settings, asked.per, asked.rate, found.limited(limits), owners, asked.span)

    broken = []
    kept = shares({one.name: one.limit for one in found.suggestions}) if smallest_of else {}
    for one in found.suggestions:
        is_ = kept.get((one.cluster, one.name), 0.0)
        if is_ > share:
            broken.append(f"{one.name} ({one.cluster}): {is_:.6f} throttled under {one.limit}")
    smaller = {name: needed - 1 for name, needed in smallest_of.items() if needed > 1}
    beyond = shares(smaller) if smaller else {}
    for name, limit in smaller.items():
        most = max((s for (_, n), s in beyond.items() if n == name), default=0.0)
        if most <= share:
            broken.append(f"{name}: {most:.6f} throttled under {limit}, which is smaller")
    return broken


def _covers(asked: Asked) -> str:
    if asked.span == WHOLE:
        return "History: the whole archive."
    begin, end = asked.span.begin_ms, asked.span.end_ms
    return ("History:" + (f" from {instant_of(begin)}" if begin != FIRST_MS else "")
            + (f" to {instant_of(end)}" if end != LAST_MS else "") + ".")


def _about(asked: Asked) -> str:
    """What was asked, for the file of policies."""
    return (f"publish --per {asked.per} --rate {asked.rate} --share {asked.share:g}"
            f" --headroom {asked.headroom:g}. {_covers(asked)}")


def _print_json(found: Found, broken: Sequence[str] | None) -> None:
    asked = found.asked
    print(json.dumps({
        "per": asked.per, "rate": asked.rate, "share": asked.share, "headroom": asked.headroom,
        "suggestions": [one.row() for one in found.suggestions],
        "curve": [{"cluster": one.cluster, "name": one.name, **asdict(p)}
                  for one in found.suggestions for p in one.curve],
        "left_out": [{"reason": one.reason, "names": list(one.names)} for one in found.left_out],
        **({} if broken is None else {"verified": not broken, "broken": list(broken)}),
    }, ensure_ascii=False, indent=1))


def _print(found: Found, curves: bool, every: bool) -> None:
    rows = [one.row() for one in found.suggestions]
    if curves:
        rows = [{"cluster": one.cluster, "name": one.name, **asdict(p)}
                for one in found.suggestions for p in one.curve]
    names = list(rows[0]) if rows else ["cluster", "name", "limit"]
    most = None if every else SHOWN
    write_table(names, (list(_rounded(row).values()) for row in rows), sys.stdout, most,
                "--all shows every row")
    for one in found.left_out:
        example = ", ".join(one.names[:3]) + (", ..." if len(one.names) > 3 else "")
        print(printable(f"{len(one.names):,} without a limit: {one.reason}: {example}"))


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Figures for reading."""
    digits = {"throttled_share": 6, "paused_s": 3, "victim_s": 3, "total": 0}
    return {
        key: int(value) if key == "total" and value <= MOST else
        round(value, digits[key]) if key in digits else value for key, value in row.items()
    }
