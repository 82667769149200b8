"""Client quotas as commands of `kafka-configs.sh`, one for each entity."""

from __future__ import annotations

from collections.abc import Sequence

from app.show.policy.export.exported import (
    ClientQuota,
    Document,
    Exported,
    kafka_entities,
    option,
    script,
)
from app.terminal.program import PROGRAM
from state.engine.globs import name_of_text

SCRIPT = f"""\
#!/bin/sh
# Written by {PROGRAM} policy export. Limits that are not named here stay as they are.
# BOOTSTRAP_SERVER   host:port of a broker
# COMMAND_CONFIG     file of the client's settings, such as its login
# KAFKA_CONFIGS      the tool, where it is not kafka-configs.sh
set -eu
: "${{BOOTSTRAP_SERVER:?is the host:port of a broker}}"
alter() {{
  "${{KAFKA_CONFIGS:-kafka-configs.sh}}" --bootstrap-server "$BOOTSTRAP_SERVER" \\
    ${{COMMAND_CONFIG:+--command-config "$COMMAND_CONFIG"}} --alter "$@"
}}
"""


def kafka_configs(documents: Sequence[Document]) -> Exported:
    """A shell script that alters each entity once."""
    quotas, left_out = kafka_entities(documents)
    return Exported(script(SCRIPT, [_command(quota) for quota in quotas]), left_out)


def _command(quota: ClientQuota) -> str:
    """The line for an entity."""
    words = ["alter"]
    for kind, name in (("users", quota.user), ("clients", quota.client_id)):
        if name is not None:
            named = name_of_text(name)
            one = "--entity-default" if named is None else option("--entity-name", named)
            words += ["--entity-type", kind, one]
    limits = ",".join(f"{key}={limit}" for key, limit in quota.limits.items())
    return " ".join([*words, "--add-config", limits])
