"""The configuration: what it means, and how it says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import UserError
from app.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parent.parent
Load = Callable[[str], Settings]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads a configuration given as text; it is called c.yaml in the messages."""
    monkeypatch.chdir(tmp_path)

    def read(text: str) -> Settings:
        Path("c.yaml").write_text(text, encoding="utf-8")
        return load_settings(Path("c.yaml"))

    return read


def test_the_annotated_configuration_is_the_defaults() -> None:
    assert load_settings(ROOT / "configs" / "weir.yaml") == load_settings()


def test_the_annotated_configuration_names_every_key() -> None:
    text = (ROOT / "configs" / "weir.yaml").read_text(encoding="utf-8")
    shown = load_settings().model_dump()
    keys = [*shown, *shown["source"], *shown["rate_limits"]]
    assert [key for key in keys if f"{key}:" not in text] == []


def test_the_example_policies_are_valid() -> None:
    files = {"policy_files": [str(ROOT / "configs" / "policies" / "example.yaml")]}
    scopes = [policy.scope for policy in load_settings(None, files).policies]
    assert scopes == ["broker", "namespace", "resource_group", "topic"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "allowed_latness_ms: 5",
            "c.yaml: allowed_latness_ms: unknown key (did you mean allowed_lateness_ms?)",
        ),
        (
            "source: {format: demo, spede: 1}",
            "c.yaml: source.spede: unknown key"
            " (allowed: format, path, options, messages, logs, admin, groups, events, seed)",
        ),
        (
            "allowed_lateness_ms: 5s",
            "c.yaml: allowed_lateness_ms: '5s' is not a whole number of milliseconds",
        ),
        (
            "trigger_ms: 0.5",
            "c.yaml: trigger_ms: 0.5 is not a whole number of milliseconds",
        ),
        ("shards: 0", "c.yaml: shards: 0 is below 1"),
        ("shards: true", "c.yaml: shards: True is not a whole number"),
        ("commit: fast", "c.yaml: commit: 'fast' is not supported (allowed: delta-rs, spark)"),
        (
            "warehouse: a[b",
            "c.yaml: warehouse: 'a[b' has [ in it, which tables are not safe under; take another"
            " path (allowed: any path without [ and without % before two digits)",
        ),
        (
            "warehouse: a%20b",
            "c.yaml: warehouse: 'a%20b' has %XX in it, which tables are not safe under; take"
            " another path (allowed: any path without [ and without % before two digits)",
        ),
        (
            "rate_limits: {tokenbucket: per_second}",
            "c.yaml: rate_limits.tokenbucket: 'per_second' is not supported"
            " (allowed: saturating, wrapping, per_tick)",
        ),
        (
            "rate_limits: {extra_outputs: [verdicts]}",
            "c.yaml: rate_limits.extra_outputs[0]: 'verdicts' is not supported"
            " (allowed: publish_verdicts)",
        ),
        (
            "queries: [[rates]]",
            "c.yaml: queries: 'rates' is not a job (allowed: rate_limits, chunks, producer_ids,"
            " backlog, entry_cache)",
        ),
        (
            "queries: [[rate_limits], [rate_limits]]",
            "c.yaml: queries: 'rate_limits' stands in more than one place; a job runs once",
        ),
        ("source: {format: files}", "c.yaml: source.path: is missing, format files needs it"),
        (
            "source: {format: kafka, options: {subscribe: events}}",
            "c.yaml: source.options.kafka.bootstrap.servers: is missing (host:port,...)",
        ),
        (
            "source: {format: kafka, options: {kafka.bootstrap.servers: 'a:1'}}",
            "c.yaml: source.options: exactly one of subscribe, subscribePattern, assign",
        ),
        (
            "source: {format: kafka, options: {kafka.bootstrap.servers: 'a:1', subscribe: t,"
            " startingOffset: earliest}}",
            "c.yaml: source.options.startingOffset: unknown option"
            " (did you mean startingOffsets?)",
        ),
        ("shards: 4\nshards: 8", "c.yaml: shards stands twice, again in line 2"),
        ("- shards", "c.yaml: is not a mapping of keys"),
        ("policy_files: [none.yaml]", "none.yaml: cannot be read (No such file or directory)"),
        (
            "policies: [{scope: topic, name: a/b/c, limits: {publishRateInMsgs: -2}}]",
            "c.yaml: policies[0].limits.publishRateInMsgs: -2 is below -1 (-1 and 0 are off)",
        ),
        (
            "policies: [{scope: topics, name: a/b/c, limits: {}}]",
            "c.yaml: policies[0].scope: 'topics' is not one of"
            " broker, resource_group, namespace, topic, user",
        ),
        (
            "policies: [{scope: topic, name: a/b/c, limits: {publishRateInMsg: 2}}]",
            "c.yaml: policies[0].limits.publishRateInMsg: no limit of scope topic"
            " (did you mean publishRateInMsgs?)",
        ),
        (
            "policies: [{scope: topic, name: a/b/c, limits: {publishRateInMsgs: 5/s}}]",
            "c.yaml: policies[0].limits.publishRateInMsgs: is not a number of 64 bits",
        ),
        (
            "policies: [{scope: topic, name: a/b/c, limits: {publishRateInMsgs: 1.5}}]",
            "c.yaml: policies[0].limits.publishRateInMsgs: 1.5 is not a whole number",
        ),
        (
            "policies: [{scope: topic, name: a/b/c, limits:"
            " {backlog_quota: {message_age: {limitTime: -9}}}}]",
            "c.yaml: policies[0].limits.backlog_quota.message_age.limitTime:"
            " -9 is below -1 (-1 and 0 are off)",
        ),
    ],
)
def test_a_mistake_is_named_with_file_key_and_what_is_allowed(
    load: Load, text: str, message: str
) -> None:
    with pytest.raises(UserError) as raised:
        load(text)
    assert str(raised.value) == message


def test_every_mistake_is_collected_and_two_lines_are_shown(load: Load) -> None:
    with pytest.raises(UserError) as raised:
        load("shards: 0\ntrigger_ms: -1\npolicies: [{scope: topic, name: a/b/c}]")
    assert raised.value.problems == (
        "c.yaml: shards: 0 is below 1",
        "c.yaml: trigger_ms: -1 is below 0",
        "c.yaml: policies[0].limits: is missing",
    )
    assert str(raised.value).splitlines() == [
        "c.yaml: shards: 0 is below 1",
        "2 more mistakes: ./spark-submit.sh validate --config c.yaml",
    ]


@pytest.mark.parametrize("rate", [-1, 0])
def test_rates_of_minus_one_and_zero_are_off_and_allowed(load: Load, rate: int) -> None:
    limits = f"{{publishRateInMsgs: {rate}}}"
    settings = load(f"policies: [{{scope: topic, name: a/b/c, limits: {limits}}}]")
    assert settings.policy_dicts() == [
        {"scope": "topic", "name": "a/b/c", "limits": {"publishRateInMsgs": rate}}
    ]


def test_policy_files_are_relative_to_the_configuration_and_replace_earlier_ones(
    tmp_path: Path,
) -> None:
    (tmp_path / "limits.yaml").write_text(
        "[{scope: topic, name: a/b/c, limits: {publishRateInMsgs: 9}}]", encoding="utf-8"
    )
    (tmp_path / "c.yaml").write_text(
        "policy_files: [limits.yaml]\n"
        "policies: [{scope: topic, name: a/b/c, limits: {publishRateInBytes: 1}}]",
        encoding="utf-8",
    )
    assert load_settings(tmp_path / "c.yaml").policy_dicts() == [
        {"scope": "topic", "name": "a/b/c", "limits": {"publishRateInMsgs": 9}}
    ]


def test_overrides_are_merged_key_by_key(load: Load) -> None:
    load("source: {format: files, path: in}\nwarehouse: w")
    settings = load_settings(Path("c.yaml"), {"warehouse": "x", "source": {"path": "other"}})
    assert (settings.warehouse, settings.source.format, settings.source.path) == (
        "x", "files", "other",
    )


KAFKA = """
source:
  format: kafka
  options:
    kafka.bootstrap.servers: broker:9092
    subscribe: events
    maxOffsetsPerTrigger: 1000
    kafka.sasl.jaas.config: ${env:WEIR_TEST_JAAS}
    kafka.ssl.keystore.password: plain-text
    kafka.ssl.keystore.key: private-plain-text
"""


def test_secrets_come_from_the_environment_and_are_never_shown(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_TEST_JAAS", "the-secret")
    settings = load(KAFKA)
    assert settings.source.reader_options() == {
        "kafka.bootstrap.servers": "broker:9092",
        "subscribe": "events",
        "maxOffsetsPerTrigger": "1000",
        "kafka.sasl.jaas.config": "the-secret",
        "kafka.ssl.keystore.password": "plain-text",
        "kafka.ssl.keystore.key": "private-plain-text",
    }
    for text in (repr(settings), str(settings), str(settings.display())):
        assert "the-secret" not in text
        assert "plain-text" not in text


def test_a_variable_that_is_not_set_is_named(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEIR_TEST_JAAS", raising=False)
    settings = load(KAFKA)
    with pytest.raises(UserError, match="the environment variable WEIR_TEST_JAAS is not set"):
        settings.source.reader_options()


def test_params_hash_follows_what_decides_and_nothing_else() -> None:
    base = load_settings()
    policy = {"scope": "topic", "name": "a/b/c", "limits": {"publishRateInMsgs": 1}}
    same = load_settings(
        None,
        {"warehouse": "elsewhere", "trigger_ms": 5, "commit": "spark", "partitions": 3,
         "source": {"format": "files", "path": "x"}},
    )
    assert same.params_hash("rate_limits") == base.params_hash("rate_limits")
    assert same.config_hash() != base.config_hash()
    for change in ({"allowed_lateness_ms": 501}, {"policies": [policy]}):
        changed = load_settings(None, change)
        assert changed.params_hash("rate_limits") != base.params_hash("rate_limits")


def test_switches_are_the_version_parameters_in_force() -> None:
    assert load_settings().switches("rate_limits") == {
        "tokenbucket": "saturating", "release_condition": "target",
        "throttle_tracker": "per_type", "limit_change": "immediate", "protocol": "none",
        "receipt_model": "none", "broker_reason": "inform", "pause_rule": "pip",
        "repeat_throttle": "replace", "timeout_rule": "active",
    }
