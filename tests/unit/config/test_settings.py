"""The configuration: what it means, and how it says what is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.config.settings import Settings, load_settings
from app.config.source import SourceSettings
from app.errors import UserError
from app.setup.validate import resolved_text, validate
from state.jobs import BY_DEFAULT, DECLARED, JOBS

ROOT = Path(__file__).resolve().parents[3]
Load = Callable[[str], Settings]

FEED = (
    "{format: [kafka_groups, kafka_producers], cluster: east,"
    " options: {kafka.bootstrap.servers: 'e:1'}}"
)
"""Groups and producer states of a cluster."""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads a configuration given as text; it is called c.yaml in the messages."""
    monkeypatch.chdir(tmp_path)

    def read(text: str) -> Settings:
        Path("c.yaml").write_text(text, encoding="utf-8")
        return load_settings(Path("c.yaml"))

    return read


def test_the_annotated_configuration_is_the_defaults() -> None:
    shown = load_settings(ROOT / "configs" / "weir.yaml", reads=True)
    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "fleet-events"}
    example = SourceSettings(format="kafka", options=options)
    assert shown == load_settings().model_copy(update={"source": (example,)})


def test_the_annotated_configuration_names_every_key() -> None:
    text = (ROOT / "configs" / "weir.yaml").read_text(encoding="utf-8")
    shown = load_settings(ROOT / "configs" / "weir.yaml").model_dump()
    keys = [*shown, *shown["source"][0], *shown["rate_limits"]]
    assert [key for key in keys if f"{key}:" not in text] == []


@pytest.mark.parametrize("job", JOBS)
def test_versions_and_defects_are_the_last_keys_of_a_job(job: str) -> None:
    annotated = (ROOT / "configs" / "weir.yaml").read_text(encoding="utf-8")
    printed = resolved_text(load_settings(ROOT / "configs" / "weir.yaml", reads=True))
    usual, versions = divided(annotated, job)
    assert usual and set(DECLARED[job].switches) <= versions
    assert divided(printed, job) == (usual, versions)


def divided(text: str, job: str) -> tuple[set[str], set[str]]:
    """The keys of a job's section before and after the line of versions and defects."""
    (section,) = re.findall(rf"^{job}:\n((?: .*\n|\n)*)", text, re.MULTILINE)
    usual, versions = (
        set(re.findall(r"^  ([\w.]+):", part, re.MULTILINE))
        for part in section.split("  # versions and defects\n")
    )
    return usual, versions


def test_the_example_policies_are_valid() -> None:
    files = {"policy_files": [str(ROOT / "configs" / "policies" / "example.yaml")]}
    scopes = [policy.scope for policy in load_settings(None, files).policies]
    assert scopes == ["broker", "namespace", "resource_group", "topic"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "shadows: {Next: []}",
            "c.yaml: shadows: 'Next' is not a name of a shadow (allowed: 1 to 40 lower-case"
            " letters, digits, _ and -, a letter or digit first, but not live)",
        ),
        (
            "shadows: {next: [{scope: topic, name: a/b/c, limits: {publishRateInMsgs: -2}}]}",
            "c.yaml: shadows.next[0].limits.publishRateInMsgs: -2 is below -1 (-1 and 0 are off)",
        ),
        ("shadows: {next: next.yaml}", "next.yaml: cannot be read (No such file or directory)"),
        ("shadows: {next: 5}", "c.yaml: shadows.next: 5 is not a list"),
        (
            "allowed_latness_ms: 5",
            "c.yaml: allowed_latness_ms: unknown key (did you mean allowed_lateness_ms?)",
        ),
        (
            "source: {format: files, path: in, spede: 1}",
            "c.yaml: source.spede: unknown key"
            " (allowed: format, path, options, max_records_per_trigger, max_bytes_per_trigger,"
            " messages, logs, admin, groups, producers, quotas)",
        ),
        (
            "allowed_lateness_ms: 5 parsecs",
            "c.yaml: allowed_lateness_ms: '5 parsecs' is not a whole number of milliseconds, nor a"
            " duration such as 10s",
        ),
        (
            "metrics: {refresh_s: 1500ms}",
            "c.yaml: metrics.refresh_s: '1500ms' is not a whole number of seconds, nor a duration"
            " such as 10s",
        ),
        ("shards: 5m", "c.yaml: shards: '5m' is not a whole number"),
        (
            "trigger_ms: 99999999999999999999d",
            "c.yaml: trigger_ms: '99999999999999999999d' is not a whole number"
            " of milliseconds, nor a duration such as 10s",
        ),
        (
            "trigger_ms: 0.5",
            "c.yaml: trigger_ms: 0.5 is not a whole number of milliseconds, nor a"
            " duration such as 10s",
        ),
        ("shards: 0", "c.yaml: shards: 0 is below 1"),
        ("shards: true", "c.yaml: shards: True is not a whole number"),
        (
            "commit_interval_ms: {chunk_event: 0}",
            "c.yaml: commit_interval_ms.chunk_event: is not a table whose rows can wait"
            " (did you mean chunk_events?)",
        ),
        (
            "commit_interval_ms: soon",
            "c.yaml: commit_interval_ms: 'soon' is neither a duration such as 10s nor a mapping of"
            " tables to durations",
        ),
        (
            "warehouse: a[b",
            "c.yaml: warehouse: 'a[b' has [ in it, which is not safe for tables; take another"
            " path (allowed: any path without [ and without % before two digits)",
        ),
        (
            "warehouse: a%20b",
            "c.yaml: warehouse: 'a%20b' has %XX in it, which is not safe for tables; take another"
            " path (allowed: any path without [ and without % before two digits)",
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
            " backlog, entry_cache, client_quotas, archive)",
        ),
        (
            "queries: [[archive]]",
            "c.yaml: queries: names no job (allowed: rate_limits, chunks, producer_ids,"
            " backlog, entry_cache, client_quotas)",
        ),
        (
            "queries: [[rate_limits, archive], [archive]]",
            "c.yaml: queries: 'archive' is in more than one group; it runs once",
        ),
        (
            "queries: [[rate_limits], [rate_limits]]",
            "c.yaml: queries: 'rate_limits' is in more than one group; it runs once",
        ),
        ("source: {format: files}", "c.yaml: source.path: is missing, format files needs it"),
        (
            "source: {format: kafka_groups}",
            "c.yaml: source.options.kafka.bootstrap.servers: is missing (host:port,...)",
        ),
        (
            "source: [{format: files, path: in}, {format: files}]",
            "c.yaml: source[1].path: is missing, format files needs it",
        ),
        (
            "source: [{format: delta, path: t}, {format: files, path: in}]",
            "c.yaml: source: delta and files: a run has one streamed source (allowed beside it:"
            " kafka_groups, kafka_producers, kafka_quotas, pulsar_admin)",
        ),
        (
            f"source: [{{format: files, path: in}}, {FEED[:-1]}, groups: {{topic: t}}}}]",
            "c.yaml: source[1].groups.topic: unknown key (did you mean topics?)",
        ),
        (
            f"source: [{FEED}, {FEED}]",
            "c.yaml: source: kafka_groups east is there twice (cluster: a name for each cluster)",
        ),
        ("source: [5]", "c.yaml: source[0]: 5 is not a mapping of keys"),
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
            "c.yaml: source.options.startingOffset: unknown option (did you mean startingOffsets?)",
        ),
        (
            "source: {format: pulsar, options: {topics: a/b/c}}",
            "c.yaml: source.options.serviceUrl: is missing"
            " (pulsar://host:6650 or pulsar+ssl://...)",
        ),
        (
            "source: {format: pulsar, options: {serviceUrl: 'http://a:1', topics: a/b/c}}",
            "c.yaml: source.options.serviceUrl: is not an address of brokers"
            " (allowed: pulsar://host:6650, pulsar+ssl://host:6651)",
        ),
        (
            "source: {format: pulsar, options: {serviceUrl: 'pulsar://a:1'}}",
            "c.yaml: source.options.topics: is missing (tenant/namespace/name,...)",
        ),
        (
            "source: {format: pulsar, options: {serviceUrl: 'pulsar://a:1',"
            " topics: 'non-persistent://a/b/c'}}",
            "c.yaml: source.options.topics: non-persistent://a/b/c is not a persistent topic"
            " (allowed: [persistent://]tenant/namespace/name)",
        ),
        (
            "source: {format: pulsar, options: {serviceUrl: 'pulsar://a:1',"
            " topics: 'a/b/c, persistent://a/b/c'}}",
            "c.yaml: source.options.topics: persistent://a/b/c is named more than once",
        ),
        (
            "source: {format: pulsar, options: {serviceUrl: 'pulsar://a:1', topics: a/b/c,"
            " serviceURL: x}}",
            "c.yaml: source.options.serviceURL: unknown option (did you mean serviceUrl?)",
        ),
        (
            "source: {format: pulsar, options: {serviceUrl: 'pulsar://a:1', topics: a/b/c,"
            " startingOffsets: middle}}",
            "c.yaml: source.options.startingOffsets: 'middle' is not supported"
            " (allowed: earliest, latest)",
        ),
        (
            "source: {format: pulsar, options: {serviceUrl: 'pulsar://a:1', topics: a/b/c,"
            " tlsKeyFilePath: k}}",
            "c.yaml: source.options: tlsCertificateFilePath and tlsKeyFilePath belong together",
        ),
        (
            "source: {format: pulsar, options: {serviceUrl: 'pulsar://a:1', topics: a/b/c,"
            " operationTimeoutMs: soon}}",
            "c.yaml: source.options.operationTimeoutMs: 'soon' is not a number of milliseconds",
        ),
        ("shards: 4\nshards: 8", "c.yaml: line 2: 'shards' is given twice"),
        ("- shards", "c.yaml: is not a mapping of keys"),
        ("policy_files: [none.yaml]", "none.yaml: cannot be read (No such file or directory)"),
        (
            "policies: [{scope: topic, name: a/b/c, limits: {publishRateInMsgs: -2}}]",
            "c.yaml: policies[0].limits.publishRateInMsgs: -2 is below -1 (-1 and 0 are off)",
        ),
        (
            "policies: [{scope: topics, name: a/b/c, limits: {}}]",
            "c.yaml: policies[0].scope: 'topics' is not one of"
            " broker, resource_group, tenant, namespace, topic, user, client",
        ),
        (
            "policies: [{scope: topic, name: onlytopic, limits: {}}]",
            "c.yaml: policies[0].name: 'onlytopic' is not a topic of Pulsar (allowed:"
            " [scheme://]tenant/namespace/name), and source.format gives no topics of Kafka",
        ),
        (
            "policies: [{scope: namespace, name: a/b/c/d, limits: {}}]",
            "c.yaml: policies[0].name: 'a/b/c/d' is not tenant/namespace",
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
            "policies: [{scope: user, name: u, limits: {producer_byte_rate: 20MB}}]",
            "c.yaml: policies[0].limits.producer_byte_rate: is not a number of 64 bits"
            " (it counts bytes: 20MB is 20000000)",
        ),
        (
            "policies: [{scope: topic, name: a/b/c, limits: {publishRateInBytes: 1 KiB}}]",
            "c.yaml: policies[0].limits.publishRateInBytes: is not a number of 64 bits"
            " (it counts bytes: 1 KiB is 1024)",
        ),
        (
            "policies: [{scope: user, name: <defualt>, limits: {producer_byte_rate: 1}}]",
            "c.yaml: policies[0].name: '<defualt>': did you mean <default>?",
        ),
        (
            "policies: [{scope: user, name: u, client_id: <Default>, limits: {producer_byte_rate: 1}}]",
            "c.yaml: policies[0].client_id: '<Default>': did you mean <default>?",
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


@pytest.mark.parametrize("text", ["", "{}", "source: null", "warehouse: w\nshards: 4"])
def test_a_configuration_without_a_source_reads_nothing(load: Load, text: str) -> None:
    with pytest.raises(UserError, match=r"^source: is missing") as raised:
        _ = load(text).feed
    assert len(str(raised.value).splitlines()) == 2
    with pytest.raises(UserError) as raised:
        load_settings(Path("c.yaml"), reads=True)
    assert str(raised.value) == (
        "c.yaml: source: is missing (source.format allowed: kafka, kafka_messages, kafka_logs,"
        " kafka_groups, kafka_producers, kafka_quotas, pulsar, pulsar_messages, pulsar_admin, files, delta)"
    )


def test_null_switches_off_metrics_audits_and_alerts_of_a_run(load: Load) -> None:
    settings = load("metrics: null\nquality: null\nalerts: null")
    assert settings.metrics is None
    assert settings.quality.interval_ms is settings.alerts.interval_ms is None
    assert load("").quality.interval_ms and load("").alerts.interval_ms
    single = load("quality: {interval_ms: null}\nalerts: {interval_ms: null}")
    assert single == settings.model_copy()
    with pytest.raises(UserError, match=r"alerts\.interval_ms: 0 is below 1"):
        load("alerts: {interval_ms: 0}")


def test_a_missing_source_is_one_mistake_among_others(load: Load) -> None:
    with pytest.raises(UserError) as raised:
        load("shards: 0")
    assert len(raised.value.problems) == 1
    with pytest.raises(UserError) as raised:
        load_settings(Path("c.yaml"), reads=True)
    assert [text.split(":")[1] for text in raised.value.problems] == [" source", " shards"]


@pytest.mark.parametrize("command", ["run", "validate"])
@pytest.mark.parametrize("config", [None, "", "warehouse: made\n"])
def test_commands_that_read_a_source_need_one_and_make_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    config: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [command]
    if config is not None:
        Path("c.yaml").write_text(config, encoding="utf-8")
        words += ["--config", "c.yaml"]
    assert main(words) == 2
    assert "source: is missing" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"] * (config is not None)


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


def test_a_feed_of_several_formats_is_one_of_each(load: Load) -> None:
    section = "groups: {interval_ms: 5s}, producers: {interval_ms: 7s}"
    other = "{format: kafka_groups, groups: {cluster: west, options: {bootstrap.servers: 'w:1'}}}"
    settings = load(f"source: [{FEED[:-1]}, {section}}}, {other}]")
    assert [feed.title for feed in settings.polled] == [
        "kafka_groups east",
        "kafka_producers east",
        "kafka_groups west",
    ]
    assert [feed.polled.interval_ms for feed in settings.polled] == [5000, 7000, 60_000]
    assert settings.polled[0].groups is not None
    assert settings.polled[0].groups.client_options() == {"bootstrap.servers": "e:1"}
    assert settings.polled[1].reader_options() == {"kafka.bootstrap.servers": "e:1"}


def test_a_cluster_is_that_of_the_section_which_names_one(load: Load) -> None:
    logs = load("source: {format: kafka_logs, path: logs, cluster: east}").feed.logs
    assert (logs.cluster, logs.broker) == ("east", "kafka")
    inner = "{format: kafka_logs, path: logs, cluster: east, logs: {cluster: west}}"
    with pytest.raises(UserError, match=r"source\.cluster: unknown key"):
        load(f"source: {inner}")


@pytest.mark.parametrize(
    ("source", "jobs"),
    [
        ("{format: files, path: in}", BY_DEFAULT),
        (FEED, ("producer_ids", "backlog")),
        ("{format: kafka_logs, path: logs}", ("producer_ids",)),
        (f"[{FEED}, {{format: files, path: in}}]", BY_DEFAULT),
    ],
)
def test_the_jobs_are_those_that_the_feeds_can_fill(
    source: str, jobs: tuple[str, ...], load: Load
) -> None:
    assert load(f"source: {source}").jobs == jobs
    assert load(f"source: {source}\nqueries: [[chunks]]").jobs == ("chunks",)


def test_overrides_are_merged_key_by_key(load: Load) -> None:
    load("source: {format: files, path: in}\nwarehouse: w")
    settings = load_settings(Path("c.yaml"), {"warehouse": "x", "source": {"path": "other"}})
    assert (settings.warehouse, settings.feed.format, settings.feed.path) == ("x", "files", "other")


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
    assert settings.feed.reader_options() == {
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


def test_a_variable_that_is_not_set_is_named(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEIR_TEST_JAAS", raising=False)
    settings = load(KAFKA)
    with pytest.raises(UserError, match="the environment variable WEIR_TEST_JAAS is not set"):
        settings.feed.reader_options()


def test_params_hash_follows_what_decides_and_nothing_else() -> None:
    base = load_settings()
    policy = {"scope": "topic", "name": "a/b/c", "limits": {"publishRateInMsgs": 1}}
    same = load_settings(
        None,
        {
            "warehouse": "elsewhere",
            "trigger_ms": 5,
            "partitions": 3,
            "source": {"format": "files", "path": "x"},
        },
    )
    assert same.params_hash("rate_limits") == base.params_hash("rate_limits")
    assert same.config_hash() != base.config_hash()
    for change in ({"allowed_lateness_ms": 501}, {"policies": [policy]}):
        changed = load_settings(None, change)
        assert changed.params_hash("rate_limits") != base.params_hash("rate_limits")


def test_switches_are_the_version_parameters_in_force() -> None:
    assert load_settings().switches("rate_limits") == {
        "tokenbucket": "saturating",
        "release_condition": "target",
        "throttle_tracker": "per_type",
        "limit_change": "immediate",
        "protocol": "none",
        "receipt_model": "none",
        "broker_reason": "inform",
        "pause_rule": "pip",
        "repeat_throttle": "replace",
        "timeout_rule": "active",
        "observed_pauses": "correct",
    }


@pytest.mark.parametrize(
    "source",
    [
        "format: kafka_messages, options: {kafka.bootstrap.servers: 'a:1', subscribe: t}",
        "format: delta, path: events",
    ],
)
def test_a_policy_may_name_a_topic_of_kafka_where_the_source_can_have_one(
    load: Load, source: str
) -> None:
    settings = load(
        f"source: {{{source}}}\npolicies: [{{scope: topic, name: orders, limits: {{}}}}]"
    )
    assert [policy["name"] for policy in settings.policy_dicts()] == ["orders"]


def test_validate_names_limits_without_effect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(
        "source: {format: files, path: in}\npolicies:\n"
        "- {scope: broker, name: '*', limits: {managedLedgerCacheCopyEntries: true,"
        " brokerAdaptiveRecvByteBufAllocatorMinimumSize: 1024, cacheEvictionWatermark: 0.8,"
        " managedLedgerCacheSizeMB: 100}}\n",
        encoding="utf-8",
    )
    idle = [
        "broker *: managedLedgerCacheCopyEntries",
        "broker *: brokerAdaptiveRecvByteBufAllocatorMinimumSize",
    ]
    assert validate(tmp_path / "c.yaml", as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["without_effect"] == idle
    assert validate(tmp_path / "c.yaml", as_json=False) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"note: {text} has no effect on any decision" for text in idle
    ]


@pytest.mark.parametrize(
    ("section", "idle"),
    [
        (
            "rate_limits: {protocol: pip385}",
            ["rate_limits: protocol without receipt_model supported or observed or all"],
        ),
        ("rate_limits: {protocol: pip385, receipt_model: all, pause_rule: model}", []),
        (
            "rate_limits: {receipt_model: all, pause_rule: model}",
            [
                "rate_limits: receipt_model without protocol pip385",
                "rate_limits: pause_rule without protocol pip385",
            ],
        ),
        (
            "entry_cache: {cacheEvictionByMarkDeletedPosition: true}",
            ["entry_cache: cacheEvictionByMarkDeletedPosition without policy fifo or proportional"],
        ),
        ("entry_cache: {cacheEvictionByMarkDeletedPosition: true, policy: fifo}", []),
        (
            "entry_cache: {managedLedgerMinimumBacklogCursorsForCaching: 2,"
            " cacheEvictionByExpectedReadCount: false}",
            [],
        ),
        (
            "entry_cache: {managedLedgerMinimumBacklogCursorsForCaching: 2,"
            " variants: [{policy: proportional}, {policy: lru}]}",
            [],
        ),
        (
            "entry_cache: {managedLedgerCacheEvictionTimeThresholdMillisMax: 9,"
            " variants: [{policy: fifo}]}",
            [
                "entry_cache: managedLedgerCacheEvictionTimeThresholdMillisMax without policy"
                " expected_reads_stash"
            ],
        ),
    ],
)
def test_validate_names_parameters_that_need_another_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], section: str, idle: list[str]
) -> None:
    (tmp_path / "c.yaml").write_text(
        f"source: {{format: files, path: in}}\nqueries: [[rate_limits, entry_cache]]\n{section}\n",
        encoding="utf-8",
    )
    assert validate(tmp_path / "c.yaml", as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["without_effect"] == idle


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "evicted_only"),
        ("profile: upstream", "every_call"),
        ("profile: upstream, eviction_count_rule: evicted_only", "evicted_only"),
        ("eviction_count_rule: every_call", "every_call"),
    ],
)
def test_a_profile_says_which_evictions_count_unless_a_rule_is_set(
    load: Load, text: str, rule: str
) -> None:
    params = load(f"backlog: {{{text}}}").job_params("backlog")
    assert params["eviction_count_rule"] == rule
    assert "profile" not in params


def _numbers(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """Every whole number of a document that a duration may stand for, by its place."""
    ends = ("_ms", "_s", "Ms", "Millis", "MillisMax", "Seconds", ".ms", ".seconds")
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _numbers(each, (*place, key))
    elif isinstance(value, int) and place[-1].endswith(ends):
        yield place, value


def test_one_commit_interval_is_for_all_tables(load: Load) -> None:
    assert load("commit_interval_ms: {chunk_events: 2s}").commit_interval_ms == {
        "chunk_events": 2000
    }
    every = load("commit_interval_ms: 5s").commit_interval_ms
    assert set(every.values()) == {5000}
    assert {"quarantine", "throttle_events", "cache_stats"} <= set(every)


@pytest.mark.parametrize(
    ("queries", "groups"),
    [
        ("[[chunks, backlog], [rate_limits]]", [["chunks", "backlog", "archive"], ["rate_limits"]]),
        ("[[chunks], [archive, rate_limits]]", [["chunks"], ["rate_limits", "archive"]]),
        ("[[archive], [chunks]]", [["archive"], ["chunks"]]),
    ],
)
def test_the_first_group_has_the_archive_unless_another_names_it(
    load: Load, queries: str, groups: list[list[str]]
) -> None:
    settings = load(f"queries: {queries}")
    assert settings.groups == groups
    assert "archive" not in settings.jobs


def test_every_key_of_time_may_be_a_duration() -> None:
    plain = load_settings(overrides={"metrics": {}})
    defaults = plain.model_dump(by_alias=True)
    found = list(_numbers(defaults))
    names = {place[-1] for place, _ in found}
    assert {"allowed_lateness_ms", "refresh_s", "producer.id.expiration.ms"} <= names
    assert len(found) > 20
    for place, _ in found:
        overrides: Any = "2h"
        for key in reversed(place):
            overrides = {key: overrides}
        settings = load_settings(overrides={"metrics": {}} | overrides)
        value: Any = settings.model_dump(by_alias=True)
        for key in place:
            value = value[key]
        in_seconds = place[-1].endswith(("_s", "Seconds", "seconds"))
        assert value == (7200 if in_seconds else 7_200_000), place
    ms = load_settings(overrides={"trigger_ms": 90_000})
    assert load_settings(overrides={"trigger_ms": "1m30s"}).config_hash() == ms.config_hash()
