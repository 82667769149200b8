"""The command `policy suggest publish`: parses the request, searches, prints and writes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.errors import UserError
from app.jobs.rate_limits.whatif.deciding import PART, STORM, Deciding, deciding
from app.jobs.rate_limits.whatif.history import BOTH, LIMITS, RATES, History, Named, Rate
from app.jobs.rate_limits.whatif.owners import SCOPES, Per, TopicOwners
from app.jobs.rate_limits.whatif.search import (
    LimitPoint,
    curve,
    point,
    smallest,
    smallest_pair,
    together,
)
from app.read.relations import Warehouse
from app.terminal.amounts import AMOUNTS
from app.terminal.counts import counted
from app.terminal.phrases import short
from app.terminal.printable import printable, say, say_json
from app.terminal.rows import ShownColumns, write_table
from app.whatif import policy_document
from app.whatif.replay.event_span import WHOLE, EventSpan
from state.rate_limits.alone import Rules, Trace
from state.rate_limits.bucket import VERSIONS
from state.rate_limits.declaration import NAME as JOB

if TYPE_CHECKING:
    from app.config.settings import Settings

SHOWN = 20
COLUMNS = ("name", "limit", "in_force", "change", "decided_by", "without")
"""Columns of the printed table; JSON has all."""
DECIDED = (
    "decided_by: one publish, or a storm (minutes with more than ten times the median); without it"
    " the limit `without` is enough"
)
NS_PER_MS = 1_000_000
Limited = tuple[str, Rate]
"""A name, and the rate that is limited: messages or bytes."""


@dataclass(frozen=True)
class PublishRequest:
    """The request: which limits, and how they are found."""

    per: Per = "topic"
    rates: tuple[Rate, ...] = RATES
    share: float = 0.01
    """Share (0 to 1) of a name's messages, and of its bytes, that its limits may throttle together.
    """
    headroom: float = 0.0
    """Added to the smallest limit, as a share of it."""
    min_publishes: int = 100
    min_history_ms: int = 300_000
    span: EventSpan = WHOLE

    def __post_init__(self) -> None:
        if self.span.begin_ms >= self.span.end_ms:
            raise UserError("policy suggest publish: --from is not before --to")

    @property
    def rate(self) -> str:
        """The requested rates."""
        return self.rates[0] if len(self.rates) == 1 else BOTH


@dataclass(frozen=True)
class Suggestion:
    """The limit that a name needs in a cluster, and the limit of its document."""

    cluster: str
    name: str
    rate: Rate
    publishes: int
    total: float
    """Messages or bytes."""
    alone: int
    """The smallest limit that keeps the share in this cluster without one on the other rate (per
    second)."""
    needed: int
    """The smallest that keeps it in this cluster beside the limit that the other rate needs."""
    limit: int
    """The largest limit that any cluster needs, with headroom."""
    throttled_share: float
    """Share of the messages or bytes that the limits of the document throttle."""
    pauses: int
    paused_s: float
    victim_s: float
    """Pauses of other topics under `limit`, without a limit on the other rate (s)."""
    of_both: bool
    """Whether limits on both rates were asked for."""
    in_force: int | None
    """The limit of the name at the end of the history; None = it has none."""
    decided_by: str | None = None
    """`one publish` or `storm`, without which at most two thirds of `limit` are enough."""
    without: int | None = None
    """The limit that is enough without it, with headroom."""
    curve: tuple[LimitPoint, ...] = field(repr=False, default=())

    def row(self) -> dict[str, Any]:
        """As a row of the table."""
        left_out = {"curve", "of_both"} | (set() if self.of_both else {"alone"})
        row = {key: getattr(self, key) for key in self.__dataclass_fields__ if key not in left_out}
        return {**row, "change": policy_document.change(self.limit, self.in_force)}


@dataclass(frozen=True)
class NameLeftOut:
    """Names without a limit, and the reason."""

    reason: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class SuggestedLimits:
    """The result, the names with the largest limits first."""

    asked: PublishRequest
    suggestions: tuple[Suggestion, ...]
    left_out: tuple[NameLeftOut, ...]
    digests: int
    """Of the history."""

    @property
    def covers(self) -> str:
        """The time span of the history in words, and what it has of digests."""
        return f"History {self.asked.span.described()}.{self.of_digests and ' '}{self.of_digests}"

    @property
    def of_digests(self) -> str:
        """How many digests the history has, if any."""
        if not self.digests:
            return ""
        return f"Charged as one publish each: {counted(self.digests, 'digest')}."

    @property
    def limits(self) -> dict[Limited, int]:
        """The suggested limits."""
        return {(one.name, one.rate): one.limit for one in self.suggestions}

    @property
    def curve(self) -> list[dict[str, Any]]:
        """The points of every name as rows."""
        return [
            {"cluster": one.cluster, "name": one.name, "rate": one.rate, **asdict(p)}
            for one in self.suggestions
            for p in one.curve
        ]

    @property
    def notes(self) -> list[str]:
        """The limits that one publish or a storm decides, a line for each."""
        return list(
            dict.fromkeys(
                f"{one.name}: {LIMITS[one.rate]} {one.limit} is decided by"
                f" {'a storm' if one.decided_by == STORM else one.decided_by}: without it"
                f" {one.without} is enough"
                for one in self.suggestions
                if one.decided_by
            )
        )

    def limited(self, limits: Mapping[Limited, int]) -> list[policy_document.Document]:
        """The policies with these limits, one document per name."""
        scope = SCOPES[self.asked.per]
        return [
            policy_document.document(
                scope,
                name,
                {LIMITS[rate]: limits[name, rate] for rate in RATES if (name, rate) in limits},
            )
            for name in sorted({name for name, _ in limits})
        ]


def suggest(
    settings: Settings,
    asked: PublishRequest,
    out: Path | None = None,
    verify: bool = False,
    curves: bool = False,
    every: bool = False,
    as_json: bool = False,
) -> int:
    """Print the limits and write them as policies. Returns 1 if `verify` finds that
    the job throttles more or that a smaller limit suffices, else 0.
    """
    policy_document.require_writable(out)
    if JOB not in settings.jobs:
        raise UserError(f"policy suggest publish: the configuration does not run the job {JOB}")
    warehouse = Warehouse.of(settings.location)
    owners = TopicOwners(warehouse, settings.policy_dicts(), asked.per)
    found = find(warehouse, settings.job_params(JOB), asked, owners)
    broken: list[str] = []
    if verify and found.digests:
        raise UserError(
            "policy suggest publish --verify: the archive has digests, for which the job has no"
            " verdicts\nverify over a time of whole publishes: --from, --to"
        )
    if verify:
        from app.jobs.rate_limits.whatif.verify import verified

        broken = verified(settings, found, owners)
    if out is not None and found.suggestions:
        policy_document.write(out, found.limited(found.limits), _about(found), found.notes)
    if as_json:
        _print_json(found, broken if verify else None)
    else:
        _print(found, curves, every)
        for text in broken:
            print(printable(f"not verified: {text}"))
        if verify and found.suggestions and not broken:
            say(
                "verified: the job over the archive keeps every share, and exceeds it with each"
                " limit one smaller than the smallest"
            )
        if out is not None:
            where = f"The policies are in {out}."
            say(where if found.suggestions else "No policies are written.")
    return 1 if broken else 0


def find(
    warehouse: Warehouse,
    params: Mapping[str, Any],
    asked: PublishRequest,
    owners: TopicOwners,
) -> SuggestedLimits:
    """Search the archive for the limits."""
    history = History(warehouse, owners, asked.span)
    rules = Rules(
        VERSIONS.index(params["tokenbucket"]),
        params["release_condition"] == "positive",
        int(params["idle_state_ms"]) * NS_PER_MS,
    )
    out: dict[str, list[str]] = {}
    wanted = []
    for one in history.names:
        reason = _too_little(one, asked) or policy_document.problem(SCOPES[asked.per], one.name)
        if reason is None:
            wanted.append(one)
        else:
            out.setdefault(reason, []).append(one.name)
    found: dict[Named, list[Suggestion]] = {}
    limits: dict[Limited, int] = {}
    of_both = len(asked.rates) > 1
    without: dict[Named, dict[Rate, Deciding]] = {}
    calm: dict[Limited, int] = {}
    for one, traces, minutes in history.traces(wanted):
        alone: dict[Rate, int] = {}
        for rate in asked.rates:
            least = smallest(traces[rate], asked.share, rules)
            if least is None:
                reason = f"no limit of 64 bits lets enough of its {rate} pass"
                out.setdefault(reason, []).append(one.name)
            else:
                alone[rate] = least
        needs = Needs(alone, smallest_pair(traces, alone, asked.share, rules))
        own = {
            rate: policy_document.with_headroom(needed, asked.headroom)
            for rate, needed in needs.pair.items()
        }
        without[one] = deciding(traces, minutes, alone, asked.share, rules) if alone else {}
        for rate, limit in own.items():
            which = one.name, rate
            limits[which] = max(limits.get(which, 0), limit)
            if rate in without[one]:
                least = without[one][rate].without
                limit = policy_document.with_headroom(least, asked.headroom)
            calm[which] = max(calm.get(which, 0), limit)
        in_force = owners.in_force(one.cluster, one.name)
        found[one] = _suggestions(one, traces, needs, own, rules, of_both, in_force)
    # a document holds in every cluster
    raised = [
        one for one, own in found.items() if any(s.limit < limits[one.name, s.rate] for s in own)
    ]
    for one, traces, _ in history.traces(raised):
        needs = Needs({s.rate: s.alone for s in found[one]}, {s.rate: s.needed for s in found[one]})
        found[one] = _suggestions(
            one,
            traces,
            needs,
            {rate: limits[one.name, rate] for rate in needs.pair},
            rules,
            of_both,
            owners.in_force(one.cluster, one.name),
        )
    every = [
        replace(s, decided_by=without[one][s.rate].by, without=calm[one.name, s.rate])
        if s.rate in without[one] and calm[one.name, s.rate] <= PART * s.limit
        else s
        for one, own in found.items()
        for s in own
    ]
    return SuggestedLimits(
        asked,
        tuple(sorted(every, key=lambda s: _place(s, asked, limits))),
        tuple(NameLeftOut(reason, tuple(sorted(set(names)))) for reason, names in out.items()),
        sum(one.digests for one in history.names),
    )


def _place(
    one: Suggestion, asked: PublishRequest, limits: Mapping[Limited, int]
) -> tuple[Any, ...]:
    """Sort key: names by their limit on the first rate, the limits of a name together."""
    first = limits.get((one.name, asked.rates[0]), 0)
    return (-first, one.name, one.cluster, RATES.index(one.rate))


def _too_little(one: Named, asked: PublishRequest) -> str | None:
    """Why the history of a name is too short; None if it suffices."""
    if one.publishes < asked.min_publishes:
        return f"fewer than {asked.min_publishes:,} publishes (--min-publishes)"
    if one.length_ms < asked.min_history_ms:
        return (
            f"less than {asked.min_history_ms / 1000:g} s between the first publish and the"
            " last (--min-history)"
        )
    return None


@dataclass(frozen=True)
class Needs:
    """The smallest limits of a name by rate."""

    alone: Mapping[Rate, int]
    pair: Mapping[Rate, int]


def _suggestions(
    one: Named,
    traces: Mapping[Rate, Trace],
    needs: Needs,
    limits: Mapping[Rate, int],
    rules: Rules,
    of_both: bool,
    in_force: Mapping[str, int],
) -> list[Suggestion]:
    """The suggestions of a name under the limits of its document."""
    shares = together(traces, limits, rules)
    found = []
    for rate, limit in limits.items():
        trace, alone = traces[rate], needs.alone[rate]
        at = point(trace, limit, rules)
        found.append(
            Suggestion(
                one.cluster,
                one.name,
                rate,
                one.publishes,
                trace.total,
                alone,
                needs.pair[rate],
                limit,
                shares[rate],
                at.pauses,
                at.paused_s,
                at.victim_s,
                of_both,
                in_force.get(rate),
                curve=tuple(curve(trace, alone, rules, limit)),
            )
        )
    return found


def _about(found: SuggestedLimits) -> str:
    """The request as the comment line of the policy file."""
    asked = found.asked
    return (
        f"publish --per {asked.per} --rate {asked.rate} --share {asked.share:g}"
        f" --headroom {asked.headroom:g}. {found.covers}"
    )


def _print_json(found: SuggestedLimits, broken: Sequence[str] | None) -> None:
    asked = found.asked
    say_json(
        {
            "per": asked.per,
            "rate": asked.rate,
            "share": asked.share,
            "headroom": asked.headroom,
            "suggestions": [one.row() for one in found.suggestions],
            "curve": found.curve,
            "left_out": [
                {"reason": one.reason, "names": list(one.names)} for one in found.left_out
            ],
            **({} if broken is None else {"verified": not broken, "broken": list(broken)}),
        },
        indent=1,
    )


def _print(found: SuggestedLimits, curves: bool, every: bool) -> None:
    most, more = None if every else SHOWN, "--all shows every row"
    if curves:
        names = ["cluster", "name", "rate", *LimitPoint.__dataclass_fields__]
        points = [[row[name] for name in names] for row in found.curve]
        write_table(names, points, sys.stdout, most, more, columns=ShownColumns({"limit": "rate"}))
    else:
        several = len({one.cluster for one in found.suggestions}) > 1
        names = [*(["cluster"] if several else []), *COLUMNS]
        rows = [_printed(one) for one in found.suggestions]
        write_table(names, [[row[n] for n in names] for row in rows], sys.stdout, most, more)
    if any(one.decided_by for one in found.suggestions):
        say(DECIDED)
    if found.digests:
        say(found.of_digests)
    for left in found.left_out:
        example = ", ".join(left.names[:3]) + (", ..." if len(left.names) > 3 else "")
        print(printable(f"{len(left.names):,} without a limit: {left.reason}: {example}"))


def _printed(one: Suggestion) -> dict[str, Any]:
    """A row for reading: the limits with their units, which tell the rate."""
    write = AMOUNTS["per_s" if one.rate == "messages" else "bytes_per_s"]
    row = one.row()
    limits = {
        name: None if row[name] is None else write(row[name])
        for name in ("limit", "in_force", "without")
    }
    return {**row, **limits, "name": short(one.name)}
