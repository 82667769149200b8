"""Edits of a configuration beside a run: what it follows, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.config.settings import Settings, load_settings
from app.engine import policy_watch
from app.engine.policy_watch import Origin, PolicyWatch

DOCUMENT = "- {{scope: topic, name: a/b/c, limits: {{publishRateInMsgs: {rate}}}}}\n"
RESTART = "configuration: {}: needs a restart; a run follows only edits of policies"
READ = "policies: read again; the next batch judges by them"


def test_documents_of_a_shadow_are_followed_and_new_names_need_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_watch, "LOOK_S", 0.0)
    config, next_ = tmp_path / "weir.yaml", tmp_path / "next.yaml"
    config.write_text("shadows: {next: next.yaml}\n")
    next_.write_text(DOCUMENT.format(rate=1))

    def load() -> Settings:
        return load_settings(config)

    heard: list[str] = []
    watch = PolicyWatch(load(), heard.append, heard.append, Origin(config, load))

    def rates() -> dict[str, int]:
        return {
            name: documents[0]["limits"]["publishRateInMsgs"]
            for name, documents in watch.now.shadows.items()
        }

    def looked() -> list[str]:
        heard.clear()
        for _ in range(3):
            watch.look()
        return heard

    assert looked() == [] and rates() == {"next": 1}
    next_.write_text(DOCUMENT.format(rate=22))
    assert looked() == [READ] and rates() == {"next": 22}
    config.write_text("shadows: {next: next.yaml, another: next.yaml}\n")
    assert looked() == [RESTART.format("shadows")] and rates() == {"next": 22}
    config.write_text(
        "shadows: {next: next.yaml}\nrate_limits: {protocol: pip385}\nstats_window_ms: 30s\n"
    )
    assert looked() == [RESTART.format("stats_window_ms, rate_limits.protocol")]
    config.write_text("shadows: {next: next.yaml}\n")
    assert looked() == []  # as the run has it
    next_.write_text("- {scope: topic}\n")
    assert "the edit is refused" in looked()[0] and rates() == {"next": 22}
