"""The command `policy export`: what each format writes, and what it names as not exported."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli import main
from app.show.policy.export.kafka_configs import kafka_configs
from app.whatif.policy_document import document

Json = dict[str, Any]
Export = Callable[..., tuple[int, str, list[str]]]
BOTH = {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}
ALICE: Json = {"scope": "user", "name": "alice", "limits": BOTH}
PAIR = {**ALICE, "client_id": "<default>"}
CLIENT: Json = {"scope": "client", "name": "app", "limits": {"controller_mutation_rate": 10}}
NAMESPACE: Json = {
    "scope": "namespace",
    "name": "shop/orders",
    "limits": {
        "publishRateInMsgs": 100,
        "message_ttl_in_seconds": 60,
        "backlog_quota": {
            "destination_storage": {"limitSize": 1000, "policy": "producer_exception"},
            "message_age": {"limitTime": 3600},
        },
    },
}


@pytest.fixture
def export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Export:
    """Exports documents: exit code, text without its comments, and the lines of standard error."""

    def run(format_: str, *documents: Json) -> tuple[int, str, list[str]]:
        path = tmp_path / "limits.yaml"
        path.write_text(yaml.safe_dump(list(documents), sort_keys=False), encoding="utf-8")
        code = main(["policy", "export", str(path), "--format", format_])
        out, err = capsys.readouterr()
        lines = (line for line in out.splitlines() if not line.startswith("#"))
        return code, "\n".join(lines).strip(), err.splitlines()

    return run


def commands(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"{name} ")]


def arguments(text: str, tool: str) -> list[list[str]]:
    """What a script calls a tool with, word by word."""
    shown = f"{tool}() {{ for word; do printf '%s\\0' \"$word\"; done; printf '\\n'; }}\n"
    script = shown + "\n".join(commands(text, tool))
    out = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    return [line.split("\0")[:-1] for line in out.splitlines()]


def test_kafka_configs_alters_each_entity_once_with_all_of_its_limits(export: Export) -> None:
    code, text, err = export("kafka-configs", ALICE, PAIR, CLIENT)
    assert (code, err) == (0, [])
    limits = "--add-config producer_byte_rate=1048576,request_percentage=12.5"
    assert commands(text, "alter") == [
        f"alter --entity-type users --entity-name=alice {limits}",
        f"alter --entity-type users --entity-name=alice --entity-type clients --entity-default {limits}",
        "alter --entity-type clients --entity-name=app --add-config controller_mutation_rate=10",
    ]


def test_a_document_without_limits_is_named(export: Export) -> None:
    code, text, err = export("kafka-configs", {**CLIENT, "limits": {}}, ALICE)
    assert (code, len(commands(text, "alter"))) == (1, 1)
    assert err[0] == "not exported: client app: no limits: what is exported removes none"


def test_an_entity_named_default_is_not_the_default(export: Export) -> None:
    limits = {"consumer_byte_rate": 777}
    named = {"scope": "user", "name": "\\<default>", "client_id": "\\<default>", "limits": limits}
    default = {"scope": "client", "name": "<default>", "limits": limits}
    code, text, err = export("kafka-configs", named, default)
    assert (code, err) == (0, [])
    assert [" ".join(words[:-2]) for words in arguments(text, "alter")] == [
        "--entity-type users --entity-name=<default> --entity-type clients --entity-name=<default>",
        "--entity-type clients --entity-default",
    ]


@pytest.mark.parametrize("name", ["a b=c", 'it\'s "x"', "$HOME `id`", "*?[a]", "größe", "a\\b;c"])
def test_a_shell_gives_the_tool_the_name_as_it_is(name: str, export: Export) -> None:
    code, text, _ = export("kafka-configs", document("user", name, {"producer_byte_rate": 1}))
    assert code == 0
    assert ("LC_ALL=C.UTF-8" in text) is not name.isascii()
    (words,) = arguments(text, "alter")
    assert words[:3] == ["--entity-type", "users", f"--entity-name={name}"]


SCRIPTS = {"kafka-configs": "alter", "pulsar-admin": "admin"}
PER_FORMAT = {
    "kafka-configs": ("user", {"producer_byte_rate": 1}),
    "pulsar-admin": ("resource_group", {"publishRateInMsgs": 1}),
}


@pytest.mark.parametrize("format_", PER_FORMAT)
@pytest.mark.parametrize("sign", ["\x07", "\x1b", "\n", "\r", "\x7f", "\x9b", "\u2028", "\u202e"])
def test_a_name_that_no_script_passes_is_left_out_by_name(
    sign: str, format_: str, export: Export
) -> None:
    scope, limits = PER_FORMAT[format_]
    code, text, (first, *_) = export(format_, document(scope, f"a{sign}b", limits))
    assert (code, text) == (1, "")
    assert f"the name has U+{ord(sign):04X}, which no script passes" in first
    assert first.isprintable()


def test_nul_in_a_name_of_the_stream_gives_no_quota_to_another_entity() -> None:
    """A file cannot have it; a document of the stream can."""
    for client in ({}, {"client_id": "a\0b"}):
        name = "bob" if client else "alice\0--entity-default"
        found = kafka_configs([{**document("user", name, {"producer_byte_rate": 1}), **client}])
        assert found.text == ""
        assert [one.why for one in found.left_out] == [
            "the name has U+0000, which no script passes"
        ]


@pytest.mark.parametrize("name", ["-x", "--entity-default", "--help", "-", "--", "--entity-name=y"])
def test_a_name_that_looks_like_an_option_is_none(name: str, export: Export) -> None:
    code, text, _ = export("kafka-configs", document("user", name, {"producer_byte_rate": 1}))
    (words,) = arguments(text, "alter")
    assert (code, words[:3]) == (0, ["--entity-type", "users", f"--entity-name={name}"])
    group = document("resource_group", name, {"publishRateInMsgs": 1})
    of_topic = document("topic", "persistent://a/b/c", {"resource_group": name})
    code, text, _ = export("pulsar-admin", group, {**of_topic, "scope": "namespace", "name": "a/b"})
    created, put = arguments(text, "admin")
    assert (code, created[-2:]) == (0, ["--", name])
    assert put == ["namespaces", "set-resource-group", f"--resource-group-name={name}", "a/b"]


def test_two_spellings_of_a_user_are_one_entity(export: Export) -> None:
    """A later document replaces an earlier one of the same entity."""
    last = {"scope": "user", "name": "a[*]", "limits": {"producer_byte_rate": 2}}
    code, text, _ = export("kafka-configs", {**last, "limits": BOTH}, last)
    assert code == 0
    assert [words[2:] for words in arguments(text, "alter")] == [
        ["--entity-name=a*", "--add-config", "producer_byte_rate=2"]
    ]


@pytest.mark.parametrize(
    ("format_", "documents", "left_out"),
    [
        (
            "kafka-configs",
            [
                {"scope": "user", "name": "team-*", "limits": {"producer_ids_rate": 5}},
                {"scope": "user", "name": "bob", "limits": {"producer_ids_rate": 5}},
                {"scope": "client", "name": "c", "limits": {"consumer_byte_rate": 1.5}},
                NAMESPACE,
            ],
            [
                "user team-*: producer_ids_rate: is a pattern; name what it is to match",
                "user bob: producer_ids_rate: Kafka has no such quota",
                "client c: consumer_byte_rate: Kafka takes whole bytes",
                "namespace shop/orders: publishRateInMsgs: is no quota of Kafka's clients",
                "namespace shop/orders: message_ttl_in_seconds: is no quota of Kafka's clients",
                "namespace shop/orders: backlog_quota.destination_storage: is no quota of Kafka's"
                " clients",
                "namespace shop/orders: backlog_quota.message_age: is no quota of Kafka's clients",
            ],
        ),
        (
            "pulsar-admin",
            [
                NAMESPACE,
                {"scope": "topic", "name": "orders", "limits": {"publishRateInMsgs": 1}},
                {"scope": "tenant", "name": "shop", "limits": {"publishRateInMsgs": 1}},
                {"scope": "broker", "name": "*", "limits": {"numIOThreads": 4}},
                {"scope": "broker", "name": "b", "limits": {"managedLedgerCacheSizeMB": 4}},
                {"scope": "resource_group", "name": "g", "limits": {"publishRateInMsgs": 2**31}},
                CLIENT,
            ],
            [
                "tenant shop: publishRateInMsgs: no tool has limits of a tenant; name its namespaces",
                "broker *: numIOThreads: is read when a broker starts, from broker.conf",
                "broker b: managedLedgerCacheSizeMB: a dynamic configuration is that of all brokers",
                "client app: controller_mutation_rate: is no limit of Pulsar",
                "resource_group g: publishRateInMsgs: pulsar-admin takes at most 2147483647",
                "namespace shop/orders: backlog_quota.message_age: has no policy, which Pulsar"
                " requires",
                "topic orders: publishRateInMsgs: is a topic of Kafka",
            ],
        ),
    ],
)
def test_what_a_format_cannot_express_is_named(
    format_: str, documents: Sequence[Json], left_out: Sequence[str], export: Export
) -> None:
    code, text, err = export(format_, *documents)
    named = [line.removeprefix("not exported: ") for line in err if line.startswith("not exp")]
    assert (code, named) == (1, left_out)
    assert bool(text) is (format_ != "kafka-configs")
    ends = f"{len(left_out)} limits not exported" if text else "no limit can be written as"
    assert err[-1].startswith(ends)


def test_pulsar_admin_sets_both_rates_at_once_and_groups_first(export: Export) -> None:
    """A level without one of the rates has that one off, and the tool overwrites both."""
    _, text, _ = export(
        "pulsar-admin",
        {**NAMESPACE, "limits": {**NAMESPACE["limits"], "resource_group": "g"}},
        {"scope": "topic", "name": "shop/orders/x y", "limits": {"publishRateInBytes": 5}},
        {"scope": "resource_group", "name": "g", "limits": {"publishRateInMsgs": 7}},
        {
            "scope": "broker",
            "name": "*",
            "limits": {"managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed": True},
        },
    )
    assert commands(text, "admin") == [
        "admin brokers update-dynamic-config --config"
        " managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed --value=true",
        "admin resourcegroups create --msg-publish-rate=7 --byte-publish-rate=-1 g",
        "admin namespaces set-publish-rate --msg-publish-rate=100 --byte-publish-rate=-1 shop/orders",
        "admin namespaces set-resource-group --resource-group-name=g shop/orders",
        "admin namespaces set-backlog-quota --type destination_storage --limit=1000 --policy"
        " producer_exception shop/orders",
        "admin namespaces set-message-ttl --messageTTL=60 shop/orders",
        "admin topicPolicies set-publish-rate --msg-publish-rate=-1 --byte-publish-rate=5"
        " 'persistent://shop/orders/x y'",
    ]


def test_a_document_has_the_limits_of_the_patterns_that_match_it(export: Export) -> None:
    below = {"scope": "namespace", "name": "shop/*", "limits": {"publishRateInBytes": 9}}
    code, text, _ = export("pulsar-admin", below, NAMESPACE)
    assert code == 1  # the pattern itself
    assert "--msg-publish-rate=100 --byte-publish-rate=9 shop/orders" in text


def test_several_files_are_exported_together_to_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, out = (tmp_path / name for name in ("1.yaml", "2.yaml", "out.sh"))
    first.write_text(yaml.safe_dump([ALICE]))
    second.write_text(yaml.safe_dump([CLIENT]))
    words = ("--format", "kafka-configs", "--out", str(out))
    assert main(["policy", "export", str(first), str(second), *words]) == 0
    assert capsys.readouterr().out == f"The limits are in {out}.\n"
    assert len(commands(out.read_text(), "alter")) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--format", "ansible"],
            "--format ansible: is unknown\nallowed: kafka-configs, pulsar-admin",
        ),
        (["--format", "pulsar-admin", "--out", "no/such/x"], "--out no/such/x: the folder"),
    ],
)
def test_mistakes_are_named(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text(yaml.safe_dump([ALICE]))
    assert main(["policy", "export", str(path), *words]) == 2
    assert said in capsys.readouterr().err
    path.write_text("- {scope: user, name: a, limits: {producer_byte_rate: 0}}\n")
    assert main(["policy", "export", str(path), "--format", "kafka-configs"]) == 2
    assert "producer_byte_rate: is not above 0" in capsys.readouterr().err
