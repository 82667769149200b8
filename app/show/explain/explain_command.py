"""The command: finds the moment, gathers the sentences and prints them."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from app.config.owners import owner_of
from app.errors import UserError
from app.read.relations import Warehouse
from app.show.explain import changes, gaps
from app.show.explain.ask import (
    Ask,
    ConfiguredPolicies,
    archived,
    explained,
    nearest,
    newest_ms,
    unknown,
)
from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Sentence, clock, day
from app.tables.manifest import load as load_manifest
from app.terminal.moments import DURATIONS, instant_of, read_duration_ms
from app.terminal.printable import printable, say, say_json
from app.terminal.rows import plain

if TYPE_CHECKING:
    from app.config.owners import Owner
    from app.config.settings import Settings

WINDOW_MS = 10_000
TRIES = 3
"""Earlier moments that are tried where the newest one has no sentence."""
ALSO_READ = ("events", "coverage_gaps")
"""Tables with further evidence, besides those of the jobs."""
EVER = 2**62
"""A window (ms) that contains every time."""
NO_BREAK = "\N{NO-BREAK SPACE}"
LAST = 1000
"""The place of gaps among the sentences of one time."""
_MOST_WINDOW_MS = 366 * 86_400_000


def explain(
    settings: Settings,
    ask: Ask,
    at_ms: int | None = None,
    window: str | None = None,
    as_of_ms: int | None = None,
    as_json: bool = False,
) -> int:
    """Print the decisions about an entity around a moment, its newest one by default; 0."""
    window_ms = None if window is None else span_ms(window)
    reader, ask, shown, hidden = around(settings, ask, at_ms, window_ms, as_of_ms)
    if not shown:
        moments = nearest(reader, ask) if ask.hi_ms else []
        if not moments:
            return _without_rows(reader, ask, as_json)
        _print_nearest(ask, moments, as_json)
        return 0
    owner = _owner(settings.owners, ask, shown)
    (_print_json if as_json else _print)(ask, shown, hidden, owner)
    return 0


def around(
    settings: Settings,
    ask: Ask,
    at_ms: int | None = None,
    window_ms: int | None = None,
    as_of_ms: int | None = None,
) -> tuple[SnapshotReader, Ask, list[Sentence], int]:
    """The decisions about an entity around a moment, its newest one by default, in their order: what
    reads them, the question with its time (none where no job has a row), the sentences, and how many
    more there are.
    """
    warehouse = Warehouse.of(settings.location)
    warehouse.require()
    load_manifest(settings.location)
    evidence = [table for job in explained() for table in job.also_read]
    reader = SnapshotReader(warehouse.at(as_of_ms), (*ask.entity, *ALSO_READ, *evidence))
    newest = newest_ms(reader, ask) if at_ms is None else at_ms
    if newest is None:
        return reader, ask, [], 0
    # A message has few decisions: all are included unless a time is given.
    ever = ask.kind == "message" and at_ms is None and window_ms is None
    ask = ask.around(newest, EVER if ever else window_ms or WINDOW_MS)
    configured = ConfiguredPolicies(settings.policy_dicts(), settings.params_hash)
    result = gather(reader, ask, configured)
    if not result and at_ms is None:
        # the newest row is of a kind that needs no sentence: the decisions before it
        for moment in sorted(
            (m["before_ms"] for m in nearest(reader, ask) if m["before_ms"] is not None),
            reverse=True,
        )[:TRIES]:
            ask = ask.around(moment, window_ms or WINDOW_MS)
            result = gather(reader, ask, configured)
            if result:
                break
    kept = sorted(result, key=lambda found: abs(found[1].at_ms - ask.at_ms))[: ask.limit]
    kept.sort(key=lambda found: (found[1].at_ms, found[0], found[1].order))
    return reader, ask, [sentence for _, sentence in kept], len(result) - len(kept)


def _owner(owners: Sequence[Owner], ask: Ask, shown: list[Sentence]) -> dict[str, str] | None:
    """The configured owner of a topic or principal."""
    cluster = ask.cluster or next((s.decision.key.get("cluster") for s in shown), None)
    found = owner_of(
        owners,
        cluster,
        topic=ask.names[-1] if ask.kind in ("topic", "subscription") else None,
        principal=ask.names[-1] if ask.kind in ("principal", "client") else None,
    )
    return None if found is None else found.named()


def gather(
    reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies
) -> list[tuple[int, Sentence]]:
    """Every sentence about the entity, with its place among those of one time."""
    subjects = [
        subject for job in explained() for subject in job.subjects if ask.kind in subject.kinds
    ]
    found = [(0, sentence) for sentence in changes.sentences(reader, ask)]
    for subject in sorted(subjects, key=attrgetter("place")):
        told = subject.sentences(reader, ask, configured)
        found += [(subject.place, sentence) for sentence in told]
    lost = gaps.sentences(reader, ask, [sentence for _, sentence in found])
    return [*found, *((LAST, sentence) for sentence in lost)]


def span_ms(text: str) -> int:
    """A time to either side of the moment, such as 10s, 500ms, 5m or 2h."""
    length = read_duration_ms(text, f"--window {text}")
    if not 0 < length <= _MOST_WINDOW_MS:
        raise UserError(f"--window {text}: allowed: 1ms to 366d, {DURATIONS}")
    return length


def _without_rows(reader: SnapshotReader, ask: Ask, as_json: bool) -> int:
    """The answer for an entity without rows of any job."""
    found = archived(reader, ask)
    error = None if found else unknown(reader, ask)
    if error is not None:
        raise error
    if as_json:
        print(json.dumps({**_head(ask), "archived": found, "sentences": []}))
    elif found:
        also = (
            f", on connection {', '.join(found['connections'])}"
            if ask.kind == "principal" and found["connections"]
            else ""
        )
        records = "1 record" if found["rows"] == 1 else f"{found['rows']:,} records"
        say(
            f"No job has a decision about {ask.kind} {ask.name}. The archive has"
            f" {records} of it, from {instant_of(found['first_ms'])} to"
            f" {instant_of(found['last_ms'])}{also}."
        )
    else:
        say(f"The warehouse has no decision about any {ask.kind} yet.")
    return 0


def _head(ask: Ask) -> dict[str, Any]:
    return {
        "kind": ask.kind,
        "names": list(ask.names),
        "subscription": ask.subscription,
        "client_id": ask.client_id,
        "cluster": ask.cluster,
        "broker": ask.broker,
    }


def _times(ask: Ask) -> dict[str, Any]:
    ever = ask.hi_ms - ask.lo_ms > _MOST_WINDOW_MS * 2 + 1
    return {
        "at_ms": ask.at_ms,
        "from_ms": None if ever else ask.lo_ms,
        "to_ms": None if ever else ask.hi_ms - 1,
    }


def _print_json(
    ask: Ask, result: list[Sentence], hidden: int, owner: dict[str, str] | None
) -> None:
    whose = {"owner": owner} if owner else {}
    document = {
        **_head(ask),
        **_times(ask),
        **whose,
        "hidden": hidden,
        "sentences": [_json(sentence) for sentence in result],
    }
    say_json(plain(document), indent=1)


def _json(sentence: Sentence) -> dict[str, Any]:
    return {
        "at_ms": sentence.at_ms,
        "at": instant_of(sentence.at_ms),
        "text": sentence.text,
        "rule": sentence.rule,
        "numbers": [asdict(number) for number in sentence.numbers],
        "rows": {
            name: {
                "table": row.table,
                "key": dict(row.key),
                "values": dict(row.values),
                "sql": row.sql or None,
            }
            for name, row in sentence.rows.items()
        },
    }


def _print(ask: Ask, result: list[Sentence], hidden: int, owner: dict[str, str] | None) -> None:
    times = _times(ask)
    span = "" if times["from_ms"] is None else f", {_span(ask)}"
    say(f"{ask.kind} {printable(str(ask.name))}{span}")
    if owner:
        say(f"owner: {printable(', '.join(owner.values()))}")
    width = max(60, min(shutil.get_terminal_size((100, 40)).columns, 120))
    last_day = ""
    for sentence in result:
        if day(sentence.at_ms) != last_day:
            last_day = day(sentence.at_ms)
            say(f"\n{last_day}")
        say()
        line = f"{clock(sentence.at_ms)}  {printable(sentence.text)}"
        say(_wrapped(line, width, [n.shown for n in sentence.numbers]))
        say(f"{' ' * 14}({printable(sentence.source)})")
    if hidden:
        say(
            f"\nat least {hidden} more sentences: --limit {ask.limit + hidden} shows them,"
            " --window a shorter time"
        )


def _wrapped(text: str, width: int, whole: list[str]) -> str:
    """A text in lines that do not separate a number from its unit."""
    for shown in whole:
        text = text.replace(shown, shown.replace(" ", NO_BREAK))
    return textwrap.fill(
        text, width, subsequent_indent=" " * 14, break_long_words=False, break_on_hyphens=False
    ).replace(NO_BREAK, " ")


def _span(ask: Ask) -> str:
    return f"{instant_of(ask.lo_ms)} to {instant_of(ask.hi_ms - 1)}"


def _print_nearest(ask: Ask, moments: list[dict[str, Any]], as_json: bool) -> None:
    """The answer for a time without rows: the times of the nearest ones."""
    if as_json:
        print(
            json.dumps(
                {**_head(ask), **_times(ask), "hidden": 0, "sentences": [], "nearest": moments}
            )
        )
        return
    say(f"No table has rows about {ask.kind} {ask.name}, {_span(ask)}. There are rows in")
    for found in moments:
        near = [
            f"{instant_of(found[name])} ({word})"
            for name, word in (("before_ms", "before"), ("after_ms", "after"))
            if found[name] is not None
        ]
        say(
            f"  {found['table']}: {found['rows']:,} from {instant_of(found['first_ms'])} to"
            f" {instant_of(found['last_ms'])}, nearest {' and '.join(near) or 'inside'}"
        )
    times = [found[n] for found in moments for n in ("before_ms", "after_ms") if found[n]]
    if times:
        best = min(times, key=lambda ms: abs(ms - ask.at_ms))
        say(f"Try --at {instant_of(best).removesuffix(' ms')}")
