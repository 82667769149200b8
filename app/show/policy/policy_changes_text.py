"""Two sets of policy documents compared, limit by limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.config.policy_files import WrittenDocument
from state.engine.documents import name_of


@dataclass(frozen=True)
class LimitChange:
    """A limit that differs."""

    scope: str
    name: str
    limit: str
    before: Any
    after: Any
    change: str
    """set, removed, raised, lowered or changed."""
    where: str
    """File and line of the document that sets it; if both do, of the later one."""

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    def sentence(self) -> str:
        """The change in words."""
        about = f"{self.scope} {self.name}: {self.limit}"
        if self.change == "set":
            return f"{about} is set to {_shown(self.after)}"
        if self.change == "removed":
            return f"{about} is removed (was {_shown(self.before)})"
        return f"{about} is {self.change} from {_shown(self.before)} to {_shown(self.after)}"


def changes(
    before: Sequence[WrittenDocument], after: Sequence[WrittenDocument]
) -> list[LimitChange]:
    """The limits that differ, by scope and name in the order of the documents."""
    old, new = ({one.source: one for one in every} for every in (before, after))
    found = []
    for source in dict.fromkeys([*old, *new]):
        a, b = old.get(source), new.get(source)
        one = b or a
        assert one is not None
        was, now = ({} if x is None else dict(_flat(x.document["limits"])) for x in (a, b))
        for key in dict.fromkeys([*was, *now]):
            if was.get(key) == now.get(key):
                continue
            found.append(
                LimitChange(
                    one.document["scope"],
                    name_of(one.document),
                    key,
                    was.get(key),
                    now.get(key),
                    _kind(key, was.get(key), now.get(key)),
                    _where(one, key),
                )
            )
    return found


def _flat(limits: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in limits.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{place}{key}.")
        else:
            yield f"{place}{key}", value


def _kind(key: str, before: Any, after: Any) -> str:
    if before is None:
        return "set"
    if after is None:
        return "removed"
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (before, after))
    if not numbers:
        return "changed"
    # 0 and -1 are off
    rates = [x if x > 0 else float("inf") for x in (before, after)]
    if rates[0] == rates[1]:
        return "changed"
    return "raised" if rates[0] < rates[1] else "lowered"


def _where(one: WrittenDocument, key: str) -> str:
    line = one.line(f"limits.{key}")
    return f"{one.file}:{line}" if line else f"{one.file}: {one.key}"


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
