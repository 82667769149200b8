"""Kafka groups of one partition, as section 7b of the rules says it, without haste."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.reference import backlog as base
from tests.reference.backlog import SIZE, TIME, Record, Row
from tests.reference.words import words

TABLES = ("group_lag", "group_states", "lost_messages")
YEAR_2000_MS = 946_684_800_000
DAY_MS = 86_400_000
HELD = ("open_transaction", "pending_offsets")
"""States in which an open transaction holds a group: its offset is the last stable one, or its next
offset is in the transaction."""


def is_kafka(topic: str | None) -> bool:
    """Kafka's names have no scheme; a whole group has no topic."""
    return topic is None or "://" not in topic


@dataclass
class Group:
    """What is known of a group in a partition."""

    name: str
    committed: int | None = None
    stated: str | None = None
    oldest: tuple[int, bool] | None = None
    """Time of the first record that it has not read."""
    counted: tuple[int, int] | None = None
    """Records after its offset, and the end of the log then."""
    safe: int | None = None
    """Offset below which nothing more can be lost."""
    shown: str | None = None
    """The state of its last row."""
    lagged: bool = False
    history: list[tuple[int, int, int]] = field(default_factory=list)
    """Time, lag and offset of the last checks in a row."""
    ends: bool = False
    over: bool = False
    """Its state from outside has ended."""
    expired: int | None = None
    answered_ms: int | None = None
    """Time of its last state."""
    held: str | None = None
    """The state in which an open transaction holds it, as the poll of its offset says."""
    held_as: str | None = None
    """The same of the newest poll that has said so."""
    transaction: tuple[str | None, int | None, int | None] = (None, None, None)
    """The transaction that it waits for: id, producer, begin."""
    consumer: tuple[str | None, str | None] = (None, None)
    """Client id and host of the consumer that has the partition."""
    type: str | None = None
    epochs: tuple[int | None, int | None] = (None, None)
    """Of a whole group: its own and that of its target assignment."""
    told: bool = False
    """Whether its last row names that."""
    without_log: bool = False
    """Its log was deleted, or it is followed no longer."""


class Partition(base.Topic):
    """One key: a partition, or (without a topic) the groups of a cluster as a whole."""

    def __init__(
        self,
        cluster: str,
        topic: str | None,
        params: Mapping[str, Any],
        configured: Sequence[str] = (),
    ) -> None:
        super().__init__(cluster, topic or "", params, configured)
        self._is_whole = topic is None
        self._groups: dict[str, Group] = {}
        self._start: int | None = None
        self._log_gone = False

    # -- records -----------------------------------------------------------------------------

    @property
    def _end(self) -> int | None:
        return self.ledgers[0].entries if 0 in self.ledgers else None

    def _begin(self) -> None:
        if not self.ledgers.ids and not self._groups:
            self._unseen = {"cursors", "sizes"} if self._broker in self._gaps else set()

    def _ignored(self, record: Record) -> None:
        """Of no meaning in Kafka."""

    _ack = _producer_created = _producer_closed = _ignored

    def _entry_added(self, record: Record) -> None:
        if record["ledger_id"] == 0:
            self._log_gone = False
            super()._entry_added(record)

    def _ledger_state(self, record: Record) -> None:
        if record["ledger_id"] != 0:
            return
        if self._end is not None and record["ledger_entries"] < self._end:
            self.times.clear()
            for group in self._groups.values():
                group.oldest = None
        self._start, self._log_gone = record.get("log_start"), False
        self._unseen.discard("sizes")
        self.ledgers.state(0, record["ledger_entries"], record["ledger_bytes"], None)
        before = len(self.times.samples)
        self.times.state(record, None)
        for sample in self.times.samples[before:]:
            sample.source = "first_seen"

    def _ledger_deleted(self, record: Record) -> None:
        if record["ledger_id"] == 0:
            self.ledgers.delete(0)
            self._start, self._log_gone = None, True
            self.times.clear()
            for group in self._groups.values():
                group.ends, group.over, group.without_log = True, False, True

    def _group(self, name: str) -> Group:
        self._unseen.discard("cursors")
        self._log_gone = False
        group = self._groups.setdefault(name, Group(name))
        if group.ends or group.over:
            self._groups[name] = group = Group(
                name,
                stated=group.stated,
                shown=group.shown,
                lagged=group.lagged,
                counted=group.counted,
                expired=group.expired,
                answered_ms=group.answered_ms,
            )
        return group

    def _cursor_state(self, record: Record) -> None:
        if record.get("mark_delete") is None:
            return
        ledger, entry = base.position_of(record["mark_delete"])
        if ledger != 0:
            return
        group, offset = self._group(record["subscription"]), entry + 1
        if group.committed is not None and offset < group.committed:
            group.history = []
        group.held = None
        if group.committed != offset:
            group.transaction, group.told = (None, None, None), False
        timed = base.time_in(record)
        deleted = self._start is not None and self._start > offset
        if timed is not None or group.committed != offset or deleted:
            group.oldest = None if timed is None else (timed[0], True)
        group.committed, group.stated = offset, None
        group.answered_ms = record["ts_wall_ms"]
        count = record.get("unread")
        known = count is not None and self._end is not None
        group.consumer = (record.get("client_id"), record.get("client_host"))
        group.type = record.get("group_type")
        group.counted = (count, self._end) if known else None  # type: ignore[assignment]
        self._lose(group, record)

    def _lose(self, group: Group, record: Record) -> None:
        start, end, offset = self._start, self._end, group.committed
        if start is None or end is None:
            return
        assert offset is not None
        first = group.safe is None
        if group.safe is not None and end < group.safe:
            group.safe = start
        begin = offset if group.safe is None else max(offset, group.safe)
        if first and start == end == offset + 1:
            begin = start  # the log is emptied, and a marker of a transaction was its last offset
        if start > begin:
            self._put(
                "lost_messages",
                "first_sight" if first else "retention",
                {
                    **self._place(group),
                    "committed": offset,
                    "from_offset": begin,
                    "to_offset": start,
                    "offsets": start - begin,
                    "first_sight": first,
                },
            )
        group.safe = start if group.safe is None else max(group.safe, start)
        if record.get("unread") == 0:
            group.safe = max(group.safe, end)

    def _cursor_deleted(self, record: Record) -> None:
        group = self._groups.get(record["subscription"])
        if group is not None and not group.over:
            group.without_log |= not group.ends and record.get("unread") == 0
            group.ends = True

    def _group_state(self, record: Record) -> None:
        name, state = record["subscription"], record["group_state"]
        if state == "known":
            if name in self._groups:
                self._groups[name].over = True
            return
        if state in HELD:
            self._wait(record)
            return
        group = self._group(name)
        if self._is_whole:
            self._unseen = set()
        if group.committed is not None:
            group.expired = self._left(group)
            group.committed, group.oldest, group.safe = None, None, None
            group.held, group.transaction, group.told = None, (None, None, None), False
        group.stated, group.answered_ms = state, record["ts_wall_ms"]
        group.type = record.get("group_type")
        group.epochs = (record.get("group_epoch"), record.get("assignment_epoch"))

    def _wait(self, record: Record) -> None:
        group = self._groups.get(record["subscription"])
        if group is None or group.committed is None or group.ends or group.over:
            return
        if group.held_as != record["group_state"]:
            group.transaction, group.told = (None, None, None), False
        group.held = group.held_as = record["group_state"]
        producer = record.get("producer_id")
        transaction = (record.get("producer_name"), producer, record.get("publish_time_ms"))
        if producer is not None and transaction != group.transaction:
            group.transaction, group.told = transaction, False

    # -- the pass ----------------------------------------------------------------------------

    def _left(self, group: Group) -> int:
        end = self._end
        if end is None or group.committed is None:
            return 0
        if group.counted is not None and group.counted[1] == end:
            return group.counted[0]
        return max(end - max(group.committed, self._start or 0), 0)

    def _state(self, group: Group) -> str | None:
        if group.over:
            return "known"
        if self._log_gone or group.without_log:
            return "gone"
        if group.ends:
            return "offsets_expired" if self._left(group) else "gone"
        if group.stated is not None:
            return group.stated
        if self._end is None or group.committed is None:
            return None
        if group.committed > self._end:
            return "ahead"
        return group.held if group.held and group.committed < self._end else "committed"

    def _place(self, group: Group) -> Row:
        topic: str | None = self._topic
        number = base._partition(self._topic)
        if self._is_whole:
            topic = None
        elif number >= 0:
            topic = base.without_partition(self._topic)
        return {"group": group.name, "topic": topic, "partition": number if number >= 0 else None}

    def _pass(self) -> None:
        if self._policies.setting("backlogQuotaCheckEnabled", self._broker) and not self._unseen:
            for name in sorted(self._groups, key=str.encode):
                self._check_group(self._groups[name])
            if self._log_gone:
                self._groups = {}
            self._groups = {n: g for n, g in self._groups.items() if not (g.ends or g.over)}
        offsets = [g.committed for g in self._groups.values() if g.committed is not None]
        self.times.trim(self.ledgers.first_after((0, min(offsets) - 1)) if offsets else None)
        self._begin()

    def _not_checked(self) -> None:
        for group in self._groups.values():
            group.lagged = False

    def _check_group(self, group: Group) -> None:
        state = self._state(group)
        if state is None:
            return
        row: Row = {
            **self._place(group),
            "pass_ms": self._now,
            "answered_ms": group.answered_ms,
            "state": state,
            "committed": group.committed,
            "log_start": None if group.without_log else self._start,
            "log_end": None if group.without_log else self._end,
            "group_type": group.type,
        }
        row |= dict.fromkeys(
            words(
                "lag lag_records lag_bytes age_s age_state oldest_timestamp_ms limit_s"
                " limit_bytes time_usage size_usage lag_growth commit_rate time_to_drain_s"
                " time_to_loss_s client_id client_host"
            )
        )
        if state in ("ahead", "committed", *HELD):
            row["client_id"], row["client_host"] = group.consumer
        if state == "ahead":
            group.history = []
            row |= {
                "lag": self._lag(group),
                "lag_records": 0,
                "lag_bytes": 0,
                "age_state": "nothing_unread",
            }
        elif state in ("committed", *HELD):
            self._measure(group, row)
        else:
            group.history = []
        unread = None
        if state in ("offsets_expired", *HELD):
            unread = self._left(group)
        elif state == group.stated and not group.over and self._end is not None:
            unread = self._end - max(self._start or 0, 0)
        if group.expired:
            self._changed(group, row, "offsets_expired", group.expired)
        group.expired = None
        changes = state != group.shown
        waits = state in HELD
        if waits and not group.told:
            changes = True
            if group.shown == state:
                group.shown = None
        group.told = waits
        if changes and (group.shown, state) != (None, "committed"):
            self._changed(group, row, state, unread)
        lags = (waits or state in ("ahead", "committed")) and row["lag"] != 0
        wanted = lags or group.lagged or changes or self._params["check_rows"] == "all"
        if wanted and not self._is_whole:
            self._put("group_lag", state, row)
        group.lagged, group.shown = lags, state

    def _changed(self, group: Group, row: Row, state: str, unread: int | None) -> None:
        kept = ("group", "topic", "partition", "pass_ms", "committed", "log_start", "log_end")
        epochs = group.epochs if state == group.stated and not group.over else (None, None)
        self._put(
            "group_states",
            state,
            {
                **{name: row[name] for name in (*kept, "group_type")},
                "group_epoch": epochs[0],
                "assignment_epoch": epochs[1],
                "state": state,
                "before": group.shown,
                "unread": unread,
                **dict(
                    zip(
                        ("transactional_id", "producer_id", "transaction_start_ms"),
                        group.transaction if state in HELD else (None,) * 3,
                        strict=True,
                    )
                ),
            },
        )
        group.shown = state

    def _lag(self, group: Group) -> int:
        assert self._end is not None and group.committed is not None
        return self._end - group.committed

    def _measure(self, group: Group, row: Row) -> None:
        end, left, lag = self._end, self._left(group), self._lag(group)
        assert end is not None and group.committed is not None
        row["lag"] = lag
        if left == 0 or (group.counted is not None and group.counted[1] == end):
            row["lag_records"] = left
        each = self.ledgers[0].size // end if end else 0
        if left == 0 or each:
            row["lag_bytes"] = min(left * each, base.LARGEST)
        time, size = self._quota(TIME).limit, self._quota(SIZE).limit
        time, size = (-1 if time > 10**9 else time), (-1 if size > 2**62 else size)
        row["limit_s"] = time if time >= 0 else None
        row["limit_bytes"] = size if size >= 0 else None
        stands = not group.history or group.history[-1][2] == group.committed
        group.history.append((self._now, lag, group.committed))
        del group.history[: -self._params["forecast_checks"]]
        row["age_state"] = self._aged(group, row) if left else "nothing_unread"
        age, held = row["age_s"], row["lag_bytes"]
        if age is not None and time > 0:
            row["time_usage"] = age / time
        if held is not None and size > 0:
            row["size_usage"] = held / size
        seen = group.history
        growth = None
        if len(seen) >= 3:
            growth = row["lag_growth"] = base.growth_rate([(ms, value) for ms, value, _ in seen])
            row["commit_rate"] = (seen[-1][2] - seen[0][2]) / ((seen[-1][0] - seen[0][0]) / 1000.0)
            if growth < 0:
                row["time_to_drain_s"] = lag / -growth
        oldest = row["oldest_timestamp_ms"]
        if (held is not None and 0 <= size <= held) or (
            time > 0 and oldest is not None and self._now > oldest + time * 1000
        ):
            row["time_to_loss_s"] = 0.0
            return
        ahead = []
        if held is not None and size >= 0 and growth is not None and growth > 0 and each:
            ahead.append((size - held) / (growth * each))
        if time > 0 and age is not None and stands:
            ahead.append(max(float(time - age), 0.0))
        row["time_to_loss_s"] = min(ahead, default=None)

    def _aged(self, group: Group, row: Row) -> str:
        assert group.committed is not None
        found = group.oldest
        if found is None:
            sample = self.times.of((0, max(group.committed, self._start or 0)))
            found = None if sample is None else (sample.time, sample.source != "first_seen")
        if found is None:
            return "unknown"
        time, is_read = found
        if time < YEAR_2000_MS or time > self._now + DAY_MS:
            return "other_unit"
        row["oldest_timestamp_ms"], row["age_s"] = time, base.age_of(self._now, time)
        return "known" if is_read else "first_seen"
