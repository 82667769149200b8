"""`alerts watch`, and the process beside a run: rounds until they are stopped, in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from app.cli import main
from app.config.settings import load_settings
from app.errors import UserError
from app.run.service import run
from app.run.side_processes import evaluating
from app.setup.package import pack_config
from app.show.alerts.evaluator import one_round
from app.show.alerts.rule_files import rules_of
from tests.support.sinks import BUSY, RULE, evaluator_of, minutes, states
from tests.support.throttle_rows import TOPIC
from tests.support.waiting import wait_for
from tests.unit.show.alerts.receiver import receiving

ROOT = Path(__file__).resolve().parents[4]
PATIENCE_S = 60


def configuration(folder, **alerts):
    path = Path(folder, "weir.yaml")
    Path(folder, "rules").mkdir()
    Path(folder, "rules", "busy.yaml").write_text(yaml.safe_dump([RULE]))
    path.write_text(
        yaml.safe_dump(
            {
                "warehouse": str(Path(folder, "warehouse")),
                "source": {"format": "files", "path": str(folder)},
                "alerts": {"rule_files": ["rules"], "interval_ms": 100, **alerts},
            }
        )
    )
    return path


def test_watch_evaluates_again_and_again_until_it_is_stopped(tmp_path):
    warehouse = str(tmp_path / "warehouse")
    command = [
        sys.executable,
        "-m",
        "app.cli",
        "alerts",
        "watch",
        "--json",
        "--config",
        str(configuration(tmp_path)),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        logged = process.stderr.readline()
        assert logged == f"weir: warehouse: {warehouse} does not exist\n"
        minutes(warehouse, 0, **BUSY)
        first = json.loads(process.stdout.readline())
        minutes(warehouse, 1)
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        rest, more = process.communicate(timeout=PATIENCE_S)
    assert [(row["state"], row["labels"]["topic"]) for row in (first, second)] == [
        ("firing", TOPIC),
        ("resolved", TOPIC),
    ]
    assert (process.returncode, rest) == (0, "")
    assert "does not exist" not in more, "a repeated error is logged once"


def test_watch_needs_an_interval_and_rules_that_can_be_read(tmp_path, capsys):
    path = configuration(tmp_path, interval_ms=None)
    assert main(["alerts", "watch", "--config", str(path)]) == 2
    assert "alerts.interval_ms: is null" in capsys.readouterr().err
    Path(tmp_path, "rules", "busy.yaml").write_text("[{name: x}]")
    assert main(["alerts", "watch", "--config", str(path)]) == 2
    logged = capsys.readouterr().err
    assert logged.startswith(f"weir: {tmp_path}/rules/busy.yaml: [0] (x): sql: field required")
    for command in (["alerts", "check"], ["validate"]):
        assert main([*command, "--config", str(path)]) == 2
        assert f"{tmp_path}/rules/busy.yaml: [0] (x): sql" in capsys.readouterr().err


def test_a_run_with_rules_that_cannot_be_read_is_refused_before_it_starts(make_settings, tmp_path):
    with pytest.raises(UserError, match=r"no alert rules \(\*.yaml\) there"):
        run(
            make_settings(
                source={"format": "files", "path": str(tmp_path)},
                alerts={"rule_files": [str(tmp_path)]},
            )
        )


def test_a_packed_configuration_carries_the_rules(tmp_path):
    path = configuration(tmp_path)
    pack_config(path, tmp_path / "sent.yaml")
    sent = load_settings(tmp_path / "sent.yaml").alerts
    assert sent.rule_files == [] and rules_of(sent) == rules_of(load_settings(path).alerts)


def test_an_error_is_logged_once_and_again_when_it_comes_back(make_settings, tmp_warehouse):
    evaluator = evaluator_of(make_settings(alerts={"rules": [RULE], "rule_files": []}))
    logged: list[str] = []
    errors: set[str] = set()
    for step in range(4):
        if step == 2:
            minutes(tmp_warehouse, 0)
        errors = one_round(evaluator, threading.Event(), logged.append, ["text"], errors)
        if step == 2:
            Path(tmp_warehouse).rename(f"{tmp_warehouse}-elsewhere")
    assert len(logged) == 2 and all("does not exist" in text for text in logged)


def test_the_rules_are_evaluated_beside_a_run_and_once_more_at_its_end(
    make_settings, tmp_warehouse, monkeypatch
):
    with receiving() as receiver:
        monkeypatch.setenv("HOOK_URL", receiver.url)
        settings = make_settings(
            alerts={
                "rules": [RULE],
                "rule_files": [],
                "interval_ms": 50,
                "sinks": [{"type": "webhook", "url": "${env:HOOK_URL}"}],
            }
        )
        minutes(tmp_warehouse, 0, **BUSY)
        logged: list[str] = []
        with evaluating(settings, logged.append):
            wait_for(lambda: receiver.posts)
        last = settings.model_copy(
            update={"alerts": settings.alerts.model_copy(update={"interval_ms": 3_600_000})}
        )
        with evaluating(last, logged.append):
            minutes(tmp_warehouse, 1)
        assert states(receiver) == [("firing", TOPIC), ("resolved", TOPIC)]
    assert logged == []


def test_the_process_beside_a_run_starts_again_when_it_dies_and_ends_with_the_run(
    make_settings, tmp_warehouse, monkeypatch
):
    settings = make_settings(alerts={"rules": [RULE], "rule_files": [], "interval_ms": 50})
    started: list[int] = []
    popen = subprocess.Popen

    def remembered(*args, **kwargs):
        process = popen(*args, **kwargs)
        started.append(process.pid)
        return process

    monkeypatch.setattr("app.run.side_processes.subprocess.Popen", remembered)
    minutes(tmp_warehouse, 0)
    logged: list[str] = []
    with evaluating(settings, logged.append):
        wait_for(lambda: started)
        os.kill(started[0], signal.SIGKILL)
        wait_for(lambda: len(started) == 2)
    assert logged == ["alerts: the process ended with code -9; restart in 1 s"]
    assert not any(Path(f"/proc/{pid}").exists() for pid in started)


def test_a_run_whose_rules_cannot_be_read_goes_on_without(make_settings, tmp_path):
    logged: list[str] = []
    with evaluating(make_settings(alerts={"rule_files": [str(tmp_path)]}), logged.append):
        wait_for(lambda: logged)
    assert logged == [f"alerts: {tmp_path}: no alert rules (*.yaml) there; no alerts are evaluated"]


def test_nothing_is_started_where_it_is_off(make_settings):
    logged: list[str] = []
    with evaluating(make_settings(alerts=None), logged.append):
        pass
    assert logged == []
