"""The command `validate`: the configuration as Weir understands it, or every mistake in it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import yaml

from app.alerts.rule_files import rules_of
from app.errors import UserError
from app.model import ENV
from app.settings import Settings, load_settings


def unset_variables(settings: Settings) -> list[str]:
    """Environment variables that the options name and this environment does not have."""
    texts = [*settings.source.options.values(), *settings.storage_options.values()]
    if settings.throttle_feed is not None:
        texts += settings.throttle_feed.options.values()
    for sink in settings.alerts.http_sinks:
        texts += [sink.url, *sink.headers.values()]
    names = {name for text in texts for name in ENV.findall(text)}
    return sorted(name for name in names if name not in os.environ)


def validate(config: Path | None, as_json: bool) -> int:
    """Print the resolved configuration and its hash; exit code 2 after every mistake otherwise."""
    try:
        settings = load_settings(config)
        rules_of(settings.alerts)
    except UserError as error:
        if as_json:
            print(json.dumps({"valid": False, "problems": list(error.problems)}, indent=2))
        else:
            print("\n".join(error.problems), file=sys.stderr)
        return 2
    unset = unset_variables(settings)
    document = settings.display()
    hashes = {job: settings.params_hash(job) for job in settings.jobs}
    if as_json:
        facts = {"config_hash": settings.config_hash(), "params_hash": hashes, "unset": unset}
        print(json.dumps({"valid": True, **facts, "config": document}, indent=2))
        return 0
    print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")
    print(f"# config_hash: {settings.config_hash()}")
    for job, value in hashes.items():
        print(f"# params_hash of {job}: {value}")
    for name in unset:
        print(f"note: the environment variable {name} is not set here", file=sys.stderr)
    return 0
