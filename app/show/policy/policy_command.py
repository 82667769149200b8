"""The command `policy`: reads documents and prints the answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.config.documents import text_of, value_of
from app.config.policies import without_effect
from app.config.policy_files import (
    PolicyDocuments,
    WrittenDocument,
    checked,
    of_files,
    paths,
    shadows_written,
    written,
)
from app.errors import UserError
from app.read.relations import Warehouse
from app.show.policy.overridden import overridden
from app.show.policy.policy_changes_text import changes
from app.show.policy.resolve import Held, Levels
from app.terminal.counts import counted
from app.terminal.printable import printable, say
from app.terminal.program import PROGRAM
from state.engine.documents import Source, full_topic_name, name_of
from state.engine.globs import overlaid

if TYPE_CHECKING:
    from app.config.settings import Settings

SHOWN = 10
"""Limits that are named as kept."""


def documents_of(path: Path, cluster: str | None = None) -> PolicyDocuments:
    """The documents of a configuration, of a file or folder of policies, or of a warehouse: the limits
    in force of a cluster.
    """
    files = paths(str(path), Path())
    if (configuration := _configuration(path)) is not None:
        return written(configuration, str(path), path.parent)
    if _is_warehouse(path):
        from app.show.policy.limits_in_force import limits_in_force

        return checked(limits_in_force(path, cluster))
    if not files:
        raise UserError(
            f"{path}: no file is there (allowed: files, folders with *.yaml, patterns, warehouses"
            " with an archive)"
        )
    return checked(list(of_files(str(path), Path())))


def _is_warehouse(path: Path) -> bool:
    """Whether a path is that of a warehouse with an archive."""
    return (path / "events" / "_delta_log").is_dir()


def _configuration(path: Path) -> dict[str, Any] | None:
    """The document of a configuration; None for a list of policies, and where no file is."""
    document = value_of(text_of(path), str(path)) if path.is_file() else []
    if not isinstance(document, dict):
        return None
    for key, shapes in (("policies", list | str), ("policy_files", list)):
        if not isinstance(document.get(key, []), shapes):
            raise UserError(f"{path}: {key}: is not a list")
    if not isinstance(document.get("shadows", {}), dict):
        raise UserError(f"{path}: shadows: is not a mapping of names to lists")
    return document


def _given(files: Sequence[Path], cluster: str | None = None) -> PolicyDocuments:
    """The documents of several files, folders, configurations and warehouses together."""
    every = [documents_of(path, cluster) for path in files]
    if len(every) == 1:
        return every[0]
    together = checked([one for policies in every for one in policies.every])
    together.mistakes[:0] = [
        m for policies in every for m in policies.mistakes if m not in together.mistakes
    ]
    return together


def check(files: Sequence[Path], as_json: bool = False) -> int:
    """Print every mistake in policy documents, and documents without effect. Returns 2 with
    mistakes, 1 with findings, else 0.
    """
    every = [_given(files)]
    for path in files:
        every += shadows_written(_configuration(path) or {}, str(path), path.parent).values()
    mistakes = [
        {"file": m.one.file, "line": m.line, "key": _key(m.one, m.key), "text": m.text}
        for found in every
        for m in found.mistakes
    ]
    findings = [] if mistakes else [each for found in every for each in _findings(found)]
    count = sum(len(found.in_force) for found in every)
    if as_json:
        print(
            json.dumps({"documents": count, "mistakes": mistakes, "findings": findings}, indent=2)
        )
    else:
        for each in (*mistakes, *findings):
            place = each["file"] + (f":{each['line']}" if each["line"] else "")
            print(printable(f"{place}: {each['key']}: {each['text']}"))
        say(
            ", ".join(
                (
                    counted(count, "document"),
                    counted(len(mistakes), "mistake"),
                    counted(len(findings), "finding"),
                )
            )
        )
    return 2 if mistakes else 1 if findings else 0


def _key(one: WrittenDocument, key: str) -> str:
    return f"{one.key}.{key}" if key else one.key


def _findings(found: PolicyDocuments) -> Iterable[dict[str, Any]]:
    """What has no effect in valid documents."""

    def finding(one: WrittenDocument, key: str, text: str) -> dict[str, Any]:
        return {"file": one.file, "line": one.line(key), "key": _key(one, key), "text": text}

    for one, later in found.replaced:
        if one.document != later.document:
            about = f"{one.document['scope']} {one.document['name']}"
            yield finding(
                one, "name", f"{about} is replaced by the later document in {later.where}"
            )
    for one, key, by in overridden(found.in_force):
        if by is None:
            text = "may be overridden, as may later ones: too many patterns match names in common"
            yield finding(one, key, f"{text} to compare them")
        else:
            about = f"{by.document['scope']} {by.document['name']}"
            text = f"never holds: {about} ({by.where}) overrides it for every name"
            yield finding(one, key, text)
    for one in found.in_force:
        for key in without_effect(one.document):
            yield finding(one, f"limits.{key}", "has no effect on any decision")


def diff(before: Path, after: Path, cluster: str | None = None, as_json: bool = False) -> int:
    """Print the limits that differ between two sets of documents; returns 0."""
    found_changes = changes(*sides(before, after, cluster))
    if as_json:
        print(json.dumps([change.plain() for change in found_changes], indent=2))
        return 0
    for change in found_changes:
        print(printable(f"{change.sentence()}  ({change.where})"))
    if not found_changes:
        say("no limit differs")
    return 0


def sides(
    before: Path, after: Path, cluster: str | None = None
) -> tuple[list[WrittenDocument], list[WrittenDocument]]:
    """The documents in force on two sides. To the limits of a warehouse, which brokers have, a file
    is what `policy export` makes of it: its limits are put over theirs, key by key. What it does
    not name stays, and is said; a document without limits takes all of its name.
    """
    first, second = valid(before, cluster=cluster), valid(after, cluster=cluster)
    if not _is_warehouse(before) or _is_warehouse(after):
        return first, second
    over = {one.source: one for one in second}
    merged, stays = [], []
    for one in first:
        two = over.pop(one.source, one)
        own, limits = one.document["limits"], two.document["limits"]
        if limits and two is not one:
            two = replace(two, document={**two.document, "limits": overlaid(own, limits)})
        merged.append(two)
        about = f"{one.document['scope']} {name_of(one.document)}"
        stays += [f"{about} {key}" for key in own if two is one or (limits and key not in limits)]
    if stays:
        more = f", and {len(stays) - SHOWN} more" if len(stays) > SHOWN else ""
        kept = f"{counted(len(stays), 'limit')} in force that {after} does not name, kept: "
        say(printable(f"{kept}{', '.join(stays[:SHOWN])}{more}"), file=sys.stderr)
    return first, [*merged, *over.values()]


def valid(*paths: Path, cluster: str | None = None) -> list[WrittenDocument]:
    """The documents in force of configurations, files and folders of policies and of warehouses
    together. UserError for mistakes in them.
    """
    found = _given(paths, cluster)
    if found.mistakes:
        checked_by = " ".join(str(path) for path in paths)
        raise UserError.of_many(
            [str(m) for m in found.mistakes], f"{PROGRAM} policy check {checked_by}"
        )
    return found.in_force


def show(
    settings: Settings,
    config: Path | None,
    name: str,
    at_ms: int | None = None,
    cluster: str | None = None,
    as_json: bool = False,
) -> int:
    """Print the limits of a topic, principal or client id and where each comes from; returns 0."""
    found = documents_of(config) if config is not None else PolicyDocuments()
    from app.read.last_policies import last_policies

    every = last_policies(Warehouse.of(settings.location), at_ms, cluster)
    kind = _kind(name, found.in_force, {source for each in every.values() for source in each})
    answers: dict[str | None, list[Held]] = {}
    for each in every or {cluster: {}}:
        levels = Levels(found.in_force, every.get(each, {}))
        answers[each] = getattr(levels, kind)(name)
    if as_json:
        print(
            json.dumps(
                [
                    {
                        "kind": kind,
                        "name": name,
                        "cluster": each,
                        "at_ms": at_ms,
                        "limits": [held.plain() for held in held_there],
                    }
                    for each, held_there in answers.items()
                ],
                indent=2,
            )
        )
        return 0
    for each, held_there in answers.items():
        print(
            printable(
                f"{kind} {full_topic_name(name) if kind == 'topic' else name}"
                + (f" on cluster {each}" if each else "")
            )
        )
        for held in held_there:
            first, *rest = held.said
            print(printable(f"  {held.limit}: {first.value}  {first.document}  ({first.where})"))
            for said in rest:
                print(printable(f"    over {said.value}  {said.document}  ({said.where})"))
        if not held_there:
            say("  no limit")
    return 0


def _kind(name: str, found: Sequence[WrittenDocument], stream: Set[Source]) -> str:
    """What a name is: a topic if it has two slashes, or if documents have it as a topic; a client if
    they have it as a client id and not as a user. Others are principals.
    """
    sources = {one.source for one in found} | stream
    if "://" in name or name.count("/") >= 2 or ("topic", name) in sources:
        return "topic"
    is_client = ("client", name) in sources and ("user", name) not in sources
    return "client" if is_client else "principal"
