"""Suggests a limit for each entity of client quotas: reads what they need, prints and writes it."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from app.errors import UserError
from app.jobs.client_quotas.whatif.client_history import LIMITS, EntityNeed, Owner, needs
from app.read.relations import Warehouse
from app.terminal.amounts import AMOUNTS
from app.terminal.counts import counted
from app.terminal.printable import say, say_json
from app.terminal.rows import write_table
from app.whatif import policy_document
from app.whatif.replay.event_span import WHOLE, EventSpan
from state.engine.globs import name_text
from state.events import QUOTA_TYPES

if TYPE_CHECKING:
    from app.config.settings import Settings

COMMAND = "policy suggest client-quotas"
SHOWN = 20
NO_CUT = "would be a cut to what is needed at least: the client may need more than was seen"
COLUMNS = (
    "user",
    "client",
    "quota_type",
    "limit",
    "in_force",
    "bound_level",
    "change",
    "certainty",
)
"""Columns of the printed table; JSON has all."""
PARTS = {"produce": 1, "fetch": 1, "request": 1000, "controller_mutation": 1000}
"""Parts of a unit that a limit may have: Kafka takes whole bytes."""
Entity = tuple[str, str]
"""User and client, of which one may be empty."""


@dataclass(frozen=True)
class ClientHistoryRequest:
    """The request: which limits, and how they are found."""

    per: Owner = "user"
    types: tuple[str, ...] = ("produce", "fetch")
    share: float = 0.01
    """Share (0 to 1) of an entity's windows that may have a throttled request."""
    headroom: float = 0.0
    """Added to the smallest limit, as a share of it."""
    min_history_ms: int = 172_800_000
    span: EventSpan = WHOLE

    def __post_init__(self) -> None:
        if self.span.begin_ms >= self.span.end_ms:
            raise UserError(f"{COMMAND}: --from is not before --to")


class Suggested(NamedTuple):
    """A limit, and what it stands on."""

    need: EntityNeed
    limit: float
    """The largest that any cluster needs, with headroom."""

    @property
    def is_cut(self) -> bool:
        """Whether it is below the limit in force."""
        return policy_document.change(self.limit, self.need.in_force) == "cut"

    def row(self) -> dict[str, Any]:
        """As a row of the answer."""
        need = self.need._asdict()
        rate, back = need.pop("rate"), need.pop("fetches_taken_back")
        return {
            **need,
            "needed": rate,
            "limit": self.limit,
            "change": policy_document.change(self.limit, self.need.in_force),
            "certainty": self.need.certainty,
            "fetches_taken_back": back,
        }


def suggest(
    settings: Settings,
    asked: ClientHistoryRequest,
    out: Path | None = None,
    every: bool = False,
    as_json: bool = False,
) -> int:
    """Print the limits, those of the largest first, and write them as policies; returns 0."""
    policy_document.require_writable(out)
    warehouse = Warehouse.of(settings.location)
    warehouse.require()
    found = needs(warehouse, asked.per, asked.types, asked.share, asked.span)
    if not found:
        raise UserError(
            f"{COMMAND}: the tables have no use of {', '.join(asked.types)} to go by\n"
            "other types: --types; another time: --from, --to"
        )
    suggested, left_out = limits_of(found, asked)
    notes = [text for text in map(_note, sorted({s.need for s in suggested}, key=_reason)) if text]
    notes = list(dict.fromkeys(notes))
    history = history_of([one.need.length_ms for one in suggested] or [0])
    if out is not None and suggested:
        about = f"client-quotas --share {asked.share:g} --headroom {asked.headroom:g}."
        if asked.span != WHOLE:
            about += f" Asked for {asked.span.described()}."
        policy_document.write(out, documents(suggested), about, [history, *notes])
    if as_json:
        rows = [one.row() for one in suggested]
        answer = {"share": asked.share, "headroom": asked.headroom, "suggestions": rows}
        say_json({**answer, "left_out": left_out}, indent=1)
        return 0
    if suggested:
        say(history)
    _print(suggested, every)
    for note in notes:
        say(note)
    for reason, count in left_out.items():
        say(f"{counted(count, 'limit')} left out: {reason}")
    if out is not None:
        say(f"The policies are in {out}." if suggested else "No policies are written.")
    return 0


def limits_of(
    found: Sequence[EntityNeed], asked: ClientHistoryRequest
) -> tuple[list[Suggested], dict[str, int]]:
    """The limits, those of each type from the largest on; and how many there are not, by reason. A
    document holds in every cluster, so an entity gets the largest limit that one of them needs."""
    limits: dict[tuple[str, str, str], float] = {}
    left_out: dict[str, int] = {}
    kept = []
    for need in found:
        reason = _why_none(need, asked)
        if reason is not None:
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        kept.append(need)
        key = need.user, need.client, need.quota_type
        limits[key] = max(limits.get(key, 0), _limit(need, asked.headroom))
    suggested = [Suggested(n, limits[n.user, n.client, n.quota_type]) for n in kept]
    cuts = {one.need[1:4] for one in suggested if one.is_cut and one.need.certainty == "at least"}
    if cuts:
        left_out[NO_CUT] = sum(one.need[1:4] in cuts for one in suggested)
        suggested = [one for one in suggested if one.need[1:4] not in cuts]
    suggested.sort(
        key=lambda s: (QUOTA_TYPES.index(s.need.quota_type), -s.limit, s.need[1:3], s.need.cluster)
    )
    return suggested, left_out


def history_of(lengths_ms: Sequence[int]) -> str:
    """Of how long a use the limits are, in words."""
    shown = dict.fromkeys(AMOUNTS["ms"](length) for length in (min(lengths_ms), max(lengths_ms)))
    return f"History found: {' to '.join(shown)} of each client"


def _why_none(need: EntityNeed, asked: ClientHistoryRequest) -> str | None:
    """Why an entity gets no limit, or None."""
    if need.rate is None:
        return "brokers show tokens only, which say nothing of another limit"
    if need.rate <= 0:
        return "nothing was used"
    if need.length_ms < asked.min_history_ms:
        return (
            f"less than {AMOUNTS['ms'](asked.min_history_ms)} from the first window to the last"
            " (--min-history)"
        )
    if not need.user and not need.client:
        return "requests without a client id have no limit of their own"
    names = (("user", need.user), ("client", need.client))
    return next(
        (why for scope, name in names if name and (why := policy_document.problem(scope, name))),
        None,
    )


def _limit(need: EntityNeed, headroom: float) -> float:
    """The smallest limit that a policy can have, with headroom."""
    parts, rate = PARTS[need.quota_type], need.rate or 0.0
    steps = math.ceil(rate * parts)
    if (steps - 1) / parts >= rate:  # a product that was rounded up
        steps -= 1
    limit = policy_document.with_headroom(max(steps, 1), headroom)
    return limit if parts == 1 else limit / parts


def documents(suggested: Sequence[Suggested]) -> list[policy_document.Document]:
    """The policies with these limits, one document per entity."""
    limits: dict[Entity, dict[str, float]] = {}
    for one in suggested:
        key = LIMITS[one.need.quota_type]
        limits.setdefault((one.need.user, one.need.client), {})[key] = one.limit
    return [
        policy_document.document("client", name_text(client), found)
        if not user
        else policy_document.document("user", name_text(user), found, client and name_text(client))
        for (user, client), found in sorted(limits.items())
    ]


def _reason(need: EntityNeed) -> tuple[str, str, bool]:
    return need.certainty, need.basis, need.throttled_windows > 0 or need.fetches_taken_back


def _note(need: EntityNeed) -> str | None:
    """What makes a limit a bound, in words; None for an exact one."""
    if need.basis == "metrics":
        return "at least, by metrics: a burst between two measurements of a broker is not in a rate"
    if need.basis == "usage":
        return (
            "at least, by usage: no quota of this type was ever set, so that the limit is from means"
            " of windows, which have no bursts"
        )
    if need.certainty == "at least":
        return "at least, by requests: the client was throttled meanwhile, and may have sent more"
    if need.certainty == "enough":
        return "enough: a bucket of mutations holds eleven seconds, so that less may suffice"
    return None


def _print(suggested: Sequence[Suggested], every: bool) -> None:
    several = len({one.need.cluster for one in suggested}) > 1
    names = [*(["cluster"] if several else []), *COLUMNS]
    rows = [[_printed(one)[name] for name in names] for one in suggested]
    write_table(names, rows, sys.stdout, None if every else SHOWN, "--all shows every row")


def _printed(one: Suggested) -> dict[str, Any]:
    """A row for reading: the limits with their units."""
    row = one.row()
    by_type = {"request": "{} %", "controller_mutation": "{} partitions/s"}

    def written(limit: float | None) -> str | None:
        if limit is None:
            return None
        form = by_type.get(one.need.quota_type)
        return AMOUNTS["bytes_per_s"](limit) if form is None else form.format(f"{limit:g}")

    amounts = {name: written(row[name]) for name in ("limit", "in_force")}
    return {**row, **amounts}
