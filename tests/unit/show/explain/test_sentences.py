"""The sentences about the traces; the numbers are those of the semantics."""

from __future__ import annotations

import pytest

from app.jobs.chunks.explain import OUTCOMES
from app.jobs.rate_limits.explain import pause_sentences
from tests.support.chunks_stalled import STALL, stored
from tests.support.throttle_rows import write
from tests.unit.show.explain.asking import ALL, answer, texts
from tests.unit.show.explain.conftest import QUESTIONS
from tests.unit.show.explain.rows import HASH, MAIL, ORDERS, START_MS, of_job
from tests.unit.state import chunk_trace


@pytest.mark.parametrize("kind", sorted({question[0] for question in QUESTIONS}))
def test_every_sentence(kind, answers, golden):
    """Regenerate with `pytest --regenerate`."""
    lines = []
    for question in QUESTIONS:
        if question[0] == kind:
            found = answers[question]
            told = [f"{s['at'][11:-1]} {s['rule']}: {s['text']}" for s in found]
            lines += [f"# {' '.join(question)}", *sorted(told), ""]
    golden(f"explain/{kind}.txt", "\n".join(lines))


def decided_by(found, *rules):
    return [sentence for sentence in found if sentence[1] in rules]


@pytest.mark.parametrize("who", [("topic", "t/ns/mail"), ("topic", MAIL), ("connection", "c1")])
def test_the_victim_and_the_connection_have_the_same_pause(who, decided, capsys):
    found = texts(capsys, decided, *who, *ALL, "--cluster", "worked")
    culprit = texts(capsys, decided, "topic", ORDERS, *ALL, "--cluster", "worked")
    rules = ("bucket_empty", "released")
    assert decided_by(found, *rules) == decided_by(culprit, *rules)


@pytest.mark.parametrize(
    ("at", "window"), [("14:00:01", "100ms"), ("14:00:01.530", "1ms"), ("14:00:00", "1ms")]
)
def test_a_pause_is_complete_wherever_the_moment_lies_in_it(at, window, decided, capsys):
    moment = ["--at", f"2026-01-05T{at}Z", "--window", window, "--cluster", "worked"]
    found = texts(capsys, decided, "topic", MAIL, *moment)
    assert decided_by(found, "bucket_empty", "released") == decided_by(
        texts(capsys, decided, "topic", ORDERS, *ALL, "--cluster", "worked"),
        "bucket_empty",
        "released",
    )


def test_a_limit_is_named_only_where_it_is_known(decided, capsys):
    """Before the window of a pause has ended no statistics have the limit; they know the one at
    its end only, which is another one if a policy came in between."""
    for cluster in ("open", "changes"):
        found = texts(capsys, decided, "topic", ORDERS, *ALL, "--cluster", cluster)
        assert "of a limit" not in found[0][2]


def test_the_policy_of_the_configuration_is_named_for_rows_decided_under_it(
    decided, capsys, tmp_path, monkeypatch
):
    config = tmp_path / "weir.yaml"
    config.write_text(
        "policies: [{scope: topic, name: t/ns/orders, limits: {publishRateInMsgs: 100}}]\n"
    )
    words = ("topic", ORDERS, *ALL, "--cluster", "open", "--config", str(config))
    assert "of a limit" not in texts(capsys, decided, *words)[0][2]
    monkeypatch.setattr("app.config.settings.Settings.params_hash", lambda self, job: HASH)
    assert (
        " messages of a limit of 100 messages per s, set by the policy topic t/ns/orders of"
        " the configuration. Connection c1" in texts(capsys, decided, *words)[0][2]
    )


def test_a_message_of_a_stalled_subscription_names_the_chunks_that_are_gone(tmp_warehouse, capsys):
    records = chunk_trace.numbered([*STALL[:-2], stored(20, "1/2", 9, "v")])
    played = chunk_trace.play([records], {"shared_orphan": "stall"}, until_ms=START_MS + 180_001)
    write(
        tmp_warehouse, "incomplete_messages", of_job("chunks", "c", played["incomplete_messages"])
    )
    for uuid, gone in (
        ("u", ", whose chunks 0 and 1 are gone."),
        ("v", "; of this message chunk 0 is gone."),
    ):
        *_, (_, _, text) = texts(capsys, tmp_warehouse, "message", uuid, *ALL)
        assert text.endswith(f"the subscription is stalled at 1:7{gone}")


def test_every_way_that_a_chunk_or_a_pause_can_end_is_seen_here(decided, capsys):
    outcomes, endings = set(), set()
    for topic in ("t/ns/scans", "t/ns/large"):
        found = answer(capsys, decided, "topic", topic, *ALL, "--limit", "1000")["sentences"]
        for sentence in found:
            row = next(iter(sentence["rows"].values()))
            outcomes.add(row["values"].get("outcome", sentence["rule"]))
    assert set(OUTCOMES) <= outcomes
    for sentence in answer(capsys, decided, "connection", "c1", *ALL, "--limit", "1000")[
        "sentences"
    ]:
        if "end" in sentence["rows"]:
            endings.add(sentence["rule"])
    assert endings == set(pause_sentences.ENDINGS)
