"""`validate --connect`: what the world answers about a configuration."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli import main
from app.config.settings import load_settings
from app.setup.validate import unset_variables
from tests.support.servers.admin import AdminServer, status
from tests.support.unwritable import unwritable


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """A configuration in which everything is in order."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("{}\n")
    return {
        "warehouse": str(tmp_path / "warehouse"),
        "source": {"format": "files", "path": str(tmp_path / "in")},
    }


def asked(
    tmp_path: Path, config: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, tuple[bool, str, str]]]:
    """Exit code and answers of the command, by the name of what was asked."""
    file = tmp_path / "weir.yaml"
    file.write_text(yaml.safe_dump(config))
    code = main(["validate", "--config", str(file), "--connect", "--json"])
    answers = json.loads(capsys.readouterr().out)["connect"]
    return code, {a["name"]: (a["ok"], a["found"], a["remedy"]) for a in answers}


def test_everything_in_order(
    tmp_path: Path, config: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    code, answers = asked(tmp_path, config, capsys)
    assert code == 0
    assert answers == {
        "warehouse": (True, f"{config['warehouse']} can be written", ""),
        "source": (True, f"{config['source']['path']} can be read", ""),
    }
    assert not Path(config["warehouse"]).exists()
    assert main(["validate", "--config", str(tmp_path / "weir.yaml"), "--connect", "--show"]) == 0
    out = capsys.readouterr().out
    assert yaml.safe_load(out)["source"]["format"] == "files"  # what is added are comments
    assert f"# ok   warehouse: {config['warehouse']} can be written\n" in out


ADMIN = {"cluster": "c", "url": "http://127.0.0.1:1", "namespaces": ["a/b"]}
GROUPS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
WITH_VARIABLES: dict[str, dict[str, Any]] = {
    "store": {"storage_options": {"aws_secret_access_key": "${env:WEIR_TEST_A}"}},
    "options": {
        "source": {
            "format": "kafka",
            "options": {**GROUPS, "subscribe": "t", "kafka.sasl.jaas.config": "${env:WEIR_TEST_A}"},
        }
    },
    "exporter": {
        "source": {
            "format": "kafka_quotas",
            "options": GROUPS,
            "quotas": {"exporters": {"1": "http://127.0.0.1:1/${env:WEIR_TEST_A}"}},
        }
    },
    "admin token": {
        "source": {"format": "pulsar_admin", "admin": {**ADMIN, "token": "${env:WEIR_TEST_A}"}}
    },
    "token of brokers": {
        "reconcile": {"brokers": ["http://127.0.0.1:1"], "token": "${env:WEIR_TEST_A}"}
    },
    "throttle feed": {
        "rate_limits": {"protocol": "pip385", "receipt_model": "supported"},
        "throttle_feed": {
            "topic": "t",
            "options": {**GROUPS, "kafka.sasl.jaas.config": "${env:WEIR_TEST_A}"},
        },
    },
    "header": {
        "alerts": {
            "sinks": [
                {
                    "type": "webhook",
                    "url": "http://127.0.0.1:1",
                    "headers": {"a": "${env:WEIR_TEST_A}, ${env:WEIR_TEST_B}"},
                }
            ]
        }
    },
}


@pytest.mark.parametrize("place", WITH_VARIABLES)
def test_variables_that_are_not_set_are_found_wherever_a_value_may_be_one(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(None, WITH_VARIABLES[place])
    names = ["WEIR_TEST_A", *["WEIR_TEST_B"] * (place == "header")]
    assert unset_variables(settings) == names
    for name in names:
        monkeypatch.setenv(name, "x")
    assert unset_variables(settings) == []


def test_everything_amiss_is_named_with_what_would_mend_it(
    tmp_path: Path,
    config: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WEIR_TEST_HOOK", raising=False)
    locked = tmp_path / "warehouse"
    locked.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{free.getsockname()[1]}"
        options = {"kafka.bootstrap.servers": closed, "subscribe": "t"}
        config |= {
            "source": {"format": "kafka", "options": options},
            "alerts": {
                "sinks": [
                    {"type": "webhook", "url": f"http://{closed}/hook"},
                    {"type": "webhook", "url": "${env:WEIR_TEST_HOOK}"},
                ]
            },
        }
        with unwritable(locked):
            code, answers = asked(tmp_path, config, capsys)
    assert code == 2
    assert [ok for ok, _, _ in answers.values()] == [False] * 5
    assert answers["environment"][1] == "WEIR_TEST_HOOK not set"
    assert answers["warehouse"][1].startswith(f"{locked} cannot be written (")
    assert answers["source"][1] == f"Kafka does not answer at {closed}: Connection refused"
    assert "security options" in answers["source"][2]
    assert "Connection refused" in answers["alerts.sinks[0]"][1]
    assert "WEIR_TEST_HOOK is not set" in answers["alerts.sinks[1]"][1]


def test_an_open_port_of_a_sink_is_in_order(
    tmp_path: Path, config: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/hook"
        config["alerts"] = {"sinks": [{"type": "webhook", "url": url}]}
        code, answers = asked(tmp_path, config, capsys)
    assert (code, answers["alerts.sinks[0]"][0]) == (0, True)


def test_brokers_whose_counters_are_compared_are_asked(
    tmp_path: Path, config: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with AdminServer() as server, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{free.getsockname()[1]}"
        server.answers["/metrics/"] = status(200, 'pulsar_ml_cache_entries{cluster="east"} 1\n')
        there = server.url.removeprefix("http://")
        brokers = {there: server.url, closed: f"http://{closed}"}
        config["reconcile"] = {"brokers": brokers, "retries": 0}
        code, answers = asked(tmp_path, config, capsys)
    assert code == 2
    assert answers[f"reconcile.brokers.{there}"] == (
        True,
        "cluster east, shows no topics; they need exposeTopicLevelMetricsInPrometheus=true",
        "",
    )
    ok, found, remedy = answers[f"reconcile.brokers.{closed}"]
    assert not ok and found.startswith(f"http://{closed}: metrics/: cannot be reached")
    assert remedy == "brokers, token and timeout_ms decide this"


def test_of_several_polled_clusters_one_has_to_answer_as_for_a_run(
    tmp_path: Path, config: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with AdminServer() as server, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{free.getsockname()[1]}"
        server.answers["persistent/a/b"] = []

        def feed(cluster: str, url: str) -> dict[str, Any]:
            admin = {"cluster": cluster, "url": url, "namespaces": ["a/b"], "retries": 0}
            return {"format": "pulsar_admin", "admin": admin}

        config["source"] = [feed("east", server.url), feed("west", closed)]
        code, answers = asked(tmp_path, config, capsys)
        assert [ok for ok, _, _ in answers.values()] == [True, True, False]
        assert code == 0
        file = str(tmp_path / "weir.yaml")
        assert main(["validate", "--config", file, "--connect"]) == 0
        lines = capsys.readouterr().out.splitlines()
        (line,) = [line for line in lines if line.startswith("# WARN")]
        assert line.startswith("# WARN source pulsar_admin west: ")
        assert line.count(closed) == 1 and line.endswith("; a run starts without it")
        config["source"][0]["admin"]["url"] = closed
        code, answers = asked(tmp_path, config, capsys)
    assert code == 2
    assert [ok for ok, _, _ in answers.values()] == [True, False, False]
