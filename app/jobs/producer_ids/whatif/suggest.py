"""The command `policy suggest producer-ids`: finds the quota that each user needs, by replaying the
archive.

The job itself runs over the archived records under one bound after another, so the advice is what
the job would decide. The first bounds are the same for every user and doubled until nobody needs
more; bisection follows for users who need more than two steps. A higher bound is assumed never to
throttle in more windows.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from app.engine.operators import operators
from app.errors import UserError
from app.read.question import MOST
from app.read.relations import Warehouse
from app.terminal.printable import say
from app.terminal.rows import write_json, write_table
from app.whatif import policy_document
from app.whatif.replay.archive import Archive
from state.engine.globs import DEFAULT_USER, USERS
from state.engine.reach import Reach
from state.producer_ids.declaration import NAME as JOB
from state.producer_ids.operator import ProducerIds
from state.producer_ids.parameters import ProducerIdsParameters

if TYPE_CHECKING:
    from app.config.settings import Settings

COMMAND = "policy suggest producer-ids"
NAMES = ("cluster", "user", "windows", "new_ids", "rate_in_force", "rate_advised")
STEP = {"window": 1.0, "second": 0.001}
"""Difference between two bounds that are tried, by rate_unit."""
MOST_STEPS = 2**53
SHOWN = 20
NOTE = (
    "new_ids: without a quota; an id that several brokers see counts once for each of them,\n"
    "where the report's distinct ids count it once."
)
User = tuple[str, str]
"""Cluster and name."""
Row = dict[str, Any]


def advise(
    settings: Settings,
    share: float = 0.01,
    every: bool = False,
    as_json: bool = False,
    headroom: float = 0.0,
    out: Path | None = None,
) -> int:
    """Print what each user needs; returns 0. With `out` the bounds, plus `headroom` as a share of them,
    are written as a policy file.

    A user needs the smallest bound under which at most `share` of its windows has an id that was
    throttled or rejected. The highest come first; without `every` the table has the first twenty
    rows.
    """
    policy_document.require_writable(out)
    if JOB not in settings.jobs:
        raise UserError(f"{COMMAND}: the configuration does not run the job {JOB}")
    warehouse = Warehouse.of(settings.location)
    warehouse.require()
    if warehouse.open("events") is None:
        raise UserError(f"{COMMAND}: the archive is empty; run the job archive first")
    rows = advice(settings, share)
    ranked = sorted(rows, key=lambda row: (-row["rate_advised"], row["cluster"], row["user"]))
    names, shown = [*NAMES, "change"], [[*row.values(), _change(row)] for row in ranked]
    if as_json:
        write_json(names, shown, sys.stdout)
    else:
        most = None if every else SHOWN
        write_table(names, shown, sys.stdout, most, "--all shows every user")
        say(NOTE)
    if out is not None:
        step = STEP[settings.section(ProducerIdsParameters).rate_unit]
        limited, rest = _documents(rows, step, headroom)
        policy_document.write(
            out, limited, f"producer-ids --share {share:g} --headroom {headroom:g}."
        )
        if not as_json:
            if rest:
                say(
                    f"{len(rest):,} without a limit: no rate is needed, none is enough, or the"
                    " name cannot have one"
                )
            say(f"The policies are in {out}.")
    return 0


def advice(settings: Settings, share: float) -> list[Row]:
    """What every user with a new id in the archive needs, by NAMES: its windows and the new ids in them
    without a quota, the `producer_ids_rate` at its last new id (None: unlimited), and the smallest one
    under which at most `share` of its windows are slowed."""
    archived = _Archive(settings)
    new, in_force = archived.without_quota(), archived.in_force()
    step = STEP[settings.section(ProducerIdsParameters).rate_unit]
    steps = _search(archived, set(new), step, share)
    return [
        dict(
            zip(
                NAMES,
                (*u, archived.windows[u], new[u], in_force.get(u), steps[u] * step),
                strict=True,
            )
        )
        for u in sorted(new)
    ]


def _change(row: Mapping[str, Any]) -> str | None:
    """What the rate is to the one in force; None where no rate is needed."""
    advised: float = row["rate_advised"]
    return policy_document.change(advised, row["rate_in_force"]) if advised else None


def _documents(
    rows: Sequence[Row], step: float, headroom: float
) -> tuple[list[policy_document.Document], list[str]]:
    """A policy for each user, sufficient in all clusters; and the users without one, because they
    need none, no bound suffices, or no policy can have their name.
    """
    needed: dict[str, int] = {}
    for row in rows:
        steps = round(row["rate_advised"] / step)
        needed[row["user"]] = max(needed.get(row["user"], 0), steps)
    limited, rest = [], []
    for user, steps in sorted(needed.items()):
        named = user != DEFAULT_USER and policy_document.problem("user", user) is None
        if named and 0 < steps < MOST_STEPS:
            rate = policy_document.with_headroom(steps, headroom) * step
            limited.append(
                policy_document.document("user", user, {"producer_ids_rate": round(rate, 3)})
            )
        else:
            rest.append(user)
    return limited, rest


def _search(archived: _Archive, users: set[User], step: float, share: float) -> dict[User, int]:
    """The fewest steps that suffice for each user."""
    enough: dict[User, int] = {}
    steps = 0
    while users and steps < MOST_STEPS:
        bad = archived.slowed({}, steps * step)
        done = {u for u in users if bad[u] <= share * archived.windows[u]}
        enough |= dict.fromkeys(done, steps)
        users = users - done
        steps = 2 * steps or 1
    enough |= dict.fromkeys(users, MOST_STEPS)
    between = {u: (n // 2, n) for u, n in enough.items() if n > 2}
    while between:
        tried = {u: (low + high) // 2 for u, (low, high) in between.items()}
        bad = archived.slowed({u: n * step for u, n in tried.items()})
        for user, n in tried.items():
            low, high = between[user]
            low, high = (low, n) if bad[user] <= share * archived.windows[user] else (n, high)
            between[user] = low, high
            enough[user] = high
        between = {u: (low, high) for u, (low, high) in between.items() if high - low > 1}
    return enough


class _Archive:
    """The archived records of the job, packed once and replayed repeatedly."""

    def __init__(self, settings: Settings) -> None:
        self._params = settings.job_params(JOB)
        policies = settings.policy_dicts()
        self._configured = [json.dumps(p, sort_keys=True) for p in policies]
        self._others = [
            json.dumps(p, sort_keys=True) for p in policies if p["scope"] not in ("user", USERS)
        ]
        archive = Archive(settings, {JOB: operators(settings, [JOB])[JOB].route})
        blobs, latest = archive.whole()
        self._all = list(blobs.values())
        self._blobs = list(archive.whole(_without_user_policies)[0].values())
        self._end_ms = min(latest + settings.stats_window_ms, MOST)
        self.windows: Counter[User] = Counter()
        """Windows of each user, after a call of `without_quota`."""

    def without_quota(self) -> Counter[User]:
        """New ids of each user without bounds; users without any are left out."""
        new: Counter[User] = Counter()
        for row in self._replay("producer_id_stats", self._blobs, self._others):
            user = row["cluster"], row["user"]
            self.windows[user] += 1
            new[user] += row["new_ids"]
        return Counter({user: n for user, n in new.items() if n})

    def in_force(self) -> dict[User, float]:
        """The bound of each user's last new id under the configured and archived policies."""
        last: dict[User, tuple[int, int, dict[str, Any]]] = {}
        for row in self._replay("producer_id_decisions", self._all, self._configured):
            user = row["cluster"], row["user"]
            at = row["ts_wall_ms"], row["row_no"]
            if user not in last or at >= last[user][:2]:
                last[user] = *at, row
        return {
            user: row["bound"]
            for user, (_, _, row) in last.items()
            if row["bound_source"] != "none"
        }

    def slowed(self, own: Mapping[User, float], default: float | None = None) -> Counter[User]:
        """Windows of each user with a throttled or rejected id, under these bounds."""
        bad: Counter[User] = Counter()
        clusters: set[str | None] = {cluster for cluster, _ in own}
        for cluster in clusters or {None}:
            # a configured policy holds in every cluster, so each cluster is replayed with its own
            documents = [_policy(name, bound) for (c, name), bound in own.items() if c == cluster]
            if default is not None:
                documents.append(_policy("<default>", default))
            for row in self._replay("producer_id_stats", self._blobs, self._others + documents):
                if row["throttle_time_avg_ms"] is not None and cluster in (None, row["cluster"]):
                    bad[row["cluster"], row["user"]] += 1
        return bad

    def _replay(
        self, table: str, shards: list[list[bytes]], policies: list[str]
    ) -> list[dict[str, Any]]:
        """Rows of one table; the clock is moved on at the end so that the last window is written."""
        job = ProducerIds(self._params, sorted(policies))
        found: list[dict[str, Any]] = []
        for blobs in shards:
            first = job.step(None, blobs, Reach(0))
            for answer in (first, job.step(first.state, [], Reach(self._end_ms))):
                if table in answer.tables:
                    found += answer.tables[table].to_pylist()
        return found


def _policy(user: str, bound: float) -> str:
    return json.dumps(
        {"scope": "user", "name": user, "limits": {"producer_ids_rate": bound}}, sort_keys=True
    )


def _without_user_policies(events: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `events` without policies of users; a column that is null throughout is not read."""
    if "policy_json" not in events.schema.names:
        return events
    texts = events.column("policy_json").to_pylist()
    return events.filter(pa.array([t is None or json.loads(t)["scope"] != "user" for t in texts]))
