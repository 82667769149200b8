"""What the summary of a report says of new producer ids: users over their bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.show.report.model import Action, Finding, JobFindings, Urgency
from app.show.report.phrases import NAMED, Row, about, clock, number_of, was

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

DECISION_COLUMNS = (
    "cluster",
    "user",
    "producer_id",
    "verdict",
    "bound",
    "bound_source",
    "ts_wall_ms",
)


@dataclass
class _User:
    """Sums over the decisions about one user's producer ids."""

    cluster: str
    name: str
    ids: set[int] = field(default_factory=set)
    first_ms: int | None = None
    last_ms: int | None = None
    bound: float | None = None
    by_default: bool = False
    over: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By verdict, `rejected` or `throttled`: the times of such batches (ms)."""

    @property
    def batches_over(self) -> int:
        """Batches with a new id over the bound."""
        return sum(map(len, self.over.values()))

    def add(self, row: Row) -> None:
        """Adds one decision."""
        self.ids.add(row["producer_id"])
        at = row["ts_wall_ms"]
        self.first_ms = at if self.first_ms is None else min(self.first_ms, at)
        self.last_ms = at if self.last_ms is None else max(self.last_ms, at)
        over = row["verdict"] in ("rejected", "throttled")
        if over:
            self.over[row["verdict"]].append(at)
        if row["bound_source"] != "none" and (over or self.bound is None):
            self.bound, self.by_default = row["bound"], row["bound_source"] == "default_user"


def producer_id_findings(decisions: Iterable[Row]) -> list[Finding]:
    """The users over their bound of new producer ids, from rows of producer_id_decisions; nothing
    without any."""
    users: dict[tuple[str, str], _User] = {}
    for row in decisions:
        users.setdefault((row["cluster"], row["user"]), _User(row["cluster"], row["user"])).add(row)
    if not users:
        return []
    total = sum(len(user.ids) for user in users.values())
    over = sorted((u for u in users.values() if u.over), key=lambda u: (-u.batches_over, u.name))
    if not over:
        ids = f"{number_of(total, 'new producer id')} of {number_of(len(users), 'user')}"
        if all(user.bound is None for user in users.values()):
            return [Finding(f"{ids}; no user has a bound.")]
        return [Finding(f"{ids}: no user was over the bound.")]
    result = [_over_bound(user, total) for user in over[:NAMED]]
    more = len(over) - NAMED
    result.append(
        f"{number_of(more, 'other user')} {was(more)} also over the bound."
        if more > 0
        else "No other user was over its bound."
    )
    return [Finding(" ".join(result), [_action(user) for user in over[:NAMED]])]


def _over_bound(user: _User, total: int) -> str:
    share = round(100 * len(user.ids) / total)
    words = {"rejected": "would have been rejected", "throttled": "would have been throttled"}
    times = sorted(at for own in user.over.values() for at in own)
    batches = " and ".join(
        f"{number_of(len(own), 'batch')} {words[verdict]}"
        for verdict, own in sorted(user.over.items())
    )
    whose = "the default bound" if user.by_default else "its bound"
    span = (user.last_ms or 0) - (user.first_ms or 0)
    return (
        f"User {user.name} brought {number_of(len(user.ids), 'new producer id')} in "
        f"{about(span)}, {share} % of all; {batches} under {whose} of {user.bound:g} "
        f"({clock(times[0])} to {clock(times[-1])})."
    )


def _action(user: _User) -> Action:
    ids, batches = len(user.ids), user.batches_over
    return Action(
        f"Let clients of user {user.name} keep their producers, or raise its bound",
        f"{number_of(ids, 'new producer id')} in {about((user.last_ms or 0) - (user.first_ms or 0))}; "
        f"{number_of(batches, 'batch')} over the bound of {user.bound:g}",
        Urgency.LOSS if "rejected" in user.over else Urgency.OWN,
        cluster=user.cluster,
        user=user.name,
        runbook="app/jobs/producer_ids/runbooks/producer-id-quota.md",
    )


def _findings(reader: ReportReader) -> list[Finding]:
    return producer_id_findings(reader.columns("producer_id_decisions", DECISION_COLUMNS))


FINDINGS = (JobFindings(20, _findings),)
