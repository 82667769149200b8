"""The command `validate`: what was checked and the resolved configuration, or every mistake in it."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from app.config.policies import without_effect
from app.config.settings import Settings, load_settings
from app.errors import UserError
from app.show.alerts.rule_files import rules_of
from app.terminal.counts import counted
from app.terminal.printable import say
from app.terminal.secrets import ENV, without_secrets
from state.jobs import DECLARED

if TYPE_CHECKING:
    from app.config.source import SourceSettings
    from app.setup.check import Check

OPTIONS: dict[str, Any] = {
    **dict.fromkeys(("storage_options", "source", "throttle_feed", "reconcile"), True),
    "alerts": {"sinks": True},
}
"""Parts of the configuration in which a value may be that of an environment variable."""


def unset_variables(settings: Settings) -> list[str]:
    """Environment variables that the options name and this environment does not have."""
    options = settings.model_dump_json(include=OPTIONS)
    return sorted(name for name in {*ENV.findall(options)} if name not in os.environ)


def idle_limits(settings: Settings) -> list[str]:
    """Limits of policies, and changed parameters of the jobs, that are accepted and have no effect:
    scope and name, or job, and key."""
    limits = [
        f"{policy['scope']} {policy['name']}: {key}"
        for policy in settings.policy_dicts()
        for key in without_effect(policy)
    ]
    limits += [
        f"shadow {name}, {policy['scope']} {policy['name']}: {key}"
        for name, policies in settings.shadow_dicts().items()
        for policy in policies
        for key in without_effect(policy)
    ]
    sections = {job: settings.section(DECLARED[job].parameters) for job in settings.jobs}
    return limits + [f"{job}: {key}" for job, own in sections.items() for key in own.idle()]


def summary(settings: Settings) -> dict[str, str]:
    """What a configuration says, a line for each part that a run has."""
    document = settings.display()
    where = {
        "source": "; ".join(map(_feed, settings.source))
        or "none: enough for commands that read the warehouse",
        "warehouse": document["warehouse"],
        "jobs": "; ".join(", ".join(group) for group in settings.groups),
        "policies": _counted(settings.policy_dicts(), "document", settings.policy_files),
        "shadows": ", ".join(settings.shadows) or "none",
        "owners": _counted(settings.owners, "rule", settings.owner_files),
    }
    alerts = settings.alerts
    beside = [
        name
        for name in ("alerts", "forecast", "quality", "maintenance")
        if getattr(settings, name).interval_ms is not None
    ]
    return where | {
        "alerts": f"{counted(len(rules_of(alerts)), 'rule')}, "
        f"{counted(len(alerts.http_sinks), 'sink')} over HTTP",
        "beside": ", ".join(beside) or "nothing",
        "metrics": "off" if settings.metrics is None else settings.metrics.listen,
        "hash": settings.config_hash(),
    }


def _feed(feed: SourceSettings) -> str:
    shown = feed.display()
    options = {**shown["options"], **(shown["groups"] or {}).get("options", {})}
    return " ".join([without_secrets(feed.title), *_places(options)])


def _places(options: Mapping[str, str]) -> list[str]:
    """Servers and topics of a source's options."""
    names = (
        "kafka.bootstrap.servers",
        "bootstrap.servers",
        "serviceUrl",
        "subscribe",
        "subscribePattern",
        "topics",
    )
    return [options[name] for name in names if name in options]


def _counted(items: Sequence[Any], noun: str, files: Sequence[str]) -> str:
    return counted(len(items), noun) + (f", with those of {', '.join(files)}" if files else "")


def resolved_text(settings: Settings) -> str:
    """Every key, and at the end of each job's section its parameters of versions and defects."""
    document = settings.display()
    lines = []
    for name, value in document.items():
        chosen = ("profile", *DECLARED[name].switches) if name in DECLARED else ()
        last = [key for key in chosen if key in value]
        if not last:
            lines.append(yaml.safe_dump({name: value}, sort_keys=False, allow_unicode=True))
            continue
        first = {key: value[key] for key in value if key not in last}
        versions = yaml.safe_dump({key: value[key] for key in last}, sort_keys=False)
        lines += [
            yaml.safe_dump({name: first}, sort_keys=False, allow_unicode=True),
            "  # versions and defects\n",
            textwrap.indent(versions, "  "),
        ]
    return "".join(lines)


def validate(
    config: Path | None,
    as_json: bool,
    connect: bool = False,
    warehouse: str | None = None,
    show: bool = False,
) -> int:
    """Print what was checked; exit code 2 after every mistake otherwise.

    With `show` every key of the resolved configuration is printed. With `connect` its paths,
    brokers, topics, sinks and permissions are checked as well; exit code 2 if a check fails without
    which a run does not start.
    """
    try:
        settings = load_settings(
            config, {"warehouse": warehouse} if warehouse else None, reads=True
        )
        rules_of(settings.alerts)
    except UserError as error:
        if as_json:
            print(json.dumps({"valid": False, "problems": list(error.problems)}, indent=2))
        else:
            say("\n".join(error.problems), file=sys.stderr)
        return 2
    unset = unset_variables(settings)
    idle = idle_limits(settings)
    hashes = settings.params_hashes()
    answers: list[Check] = []
    if connect:
        from app.setup.connect import ask

        answers = list(ask(settings, unset))
    code = 0 if all(answer.ok or not answer.needed for answer in answers) else 2
    if as_json:
        facts: dict[str, Any] = {
            "config_hash": settings.config_hash(),
            "params_hash": hashes,
            "unset": unset,
            "without_effect": idle,
        }
        if connect:
            facts["connect"] = [asdict(answer) for answer in answers]
        print(json.dumps({"valid": True, **facts, "config": settings.display()}, indent=2))
        return code
    if show:
        say(resolved_text(settings), end="")
        say(f"# config_hash: {settings.config_hash()}")
        for job, value in hashes.items():
            say(f"# params_hash of {job}: {value}")
    else:
        say(f"{config or 'the default configuration'} is valid; --show prints every key")
        for name, text in summary(settings).items():
            say(f"{name:<10}{text}")
    notes = [f"the environment variable {name} is not set here" for name in unset]
    for note in (*notes, *(f"{text} has no effect on any decision" for text in idle)):
        say(f"note: {note}", file=sys.stderr)
    for answer in answers:
        outcome = "ok  " if answer.ok else "FAIL" if answer.needed else "WARN"
        without = "" if answer.ok or answer.needed else "; a run starts without it"
        say(f"# {outcome} {answer.name}: {answer.found}{without}")
        if answer.remedy:
            say(f"#      {answer.remedy}")
    return code
