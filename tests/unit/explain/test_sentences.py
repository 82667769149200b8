"""The sentences about the traces; the numbers are those of the semantics."""

from __future__ import annotations

import pytest

from app.jobs.chunks.explain import OUTCOMES
from app.jobs.rate_limits.explain import pause_sentences
from tests.support.throttle_rows import write
from tests.unit.explain.asking import ALL, answer, texts
from tests.unit.explain.rows import HASH, MAIL, ORDERS, START_MS, of_job
from tests.unit.state import chunk_trace
from tests.unit.state.test_chunks_stalled import STALL, stored

EMPTIED = (
    f"{ORDERS} published 250 messages (1 byte) and used up its publish limit, with 250 "
    "messages in the second before; balance -150 messages of a limit of 100 messages per s"
)
PAUSED = (
    "Connection c1 on b1 is paused; its balance requires 1.51 s, with 1 producer waiting for"
    " the limiter."
)
FURTHER = (
    f"While connection c1 was paused, 1 more mark followed, the first by {ORDERS}: frames already "
    "received are still charged; at most 2 producers waited; lowest balance -131 messages."
)


def decided_by(found, *rules):
    return [sentence for sentence in found if sentence[1] in rules]


def test_a_pause_is_described_from_its_cause_to_its_end(decided, capsys):
    assert texts(capsys, decided, "topic", "t/ns/orders", *ALL, "--cluster", "worked") == [
        ("14:00:00", "bucket_empty", f"{EMPTIED}. {PAUSED}"),
        (
            "14:00:00",
            "bucket_empty",
            f"Paused with connection c1: {MAIL} although it used less than 0.1 % of its limit.",
        ),
        (
            "14:00:00",
            "window",
            f"In the 60 s from 14:00:00.000 the limiter of {ORDERS} used"
            " at most 250 % of its limit within a second, with a lowest balance of -150 messages and"
            " acted 2 times.",
        ),
        (
            "14:00:00",
            "window",
            f"In the 60 s from 14:00:00.000 {ORDERS} published 251 messages"
            " of 2 bytes in all, 4.2 % of 100 messages per s; its connections were paused 1 time, 1"
            " for its own limit, 0 for limits that it shares and 0 for the limits of other topics; it"
            " was paused for 1.53 s for its own limit, summed over connections.",
        ),
        ("14:00:00.200", "bucket_empty", FURTHER),
        (
            "14:00:01.530",
            "released",
            "Connection c1 is read again after 1.53 s: the limiter is back"
            " at its target (balance 2 messages).",
        ),
    ]


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


def test_a_pause_that_has_not_ended_is_reported_as_open(decided, capsys):
    found = texts(capsys, decided, "connection", "c1", *ALL, "--cluster", "open")
    assert found[-1] == (
        "14:00:00.200",
        "bucket_empty",
        "No row ends the pause of connection c1: it lasts at the"
        " newest row of b1, of 14:00:00.200; by its first balance it would end at 14:00:01.510 at"
        " the earliest.",
    )
    # The window has not ended: which limit holds is not known yet.
    assert found[0][2] == EMPTIED.partition(" of a limit")[0] + f". {PAUSED}"


ENDINGS = {
    "closes": (
        "14:00:00.400",
        "connection_closed",
        "Connection c1 was paused for 0.4 s: the connection was closed, which removes its marks.",
    ),
    "changes": (
        "14:00:00.400",
        "released",
        "Connection c1 is read again after 0.4 s: the limiter"
        " is back at its target (balance 7 messages).",
    ),
    "removes": (
        "14:00:00.400",
        "limit_removed",
        "Connection c1 is read again after 0.4 s: the limit was removed.",
    ),
    "flight": (
        "14:00:00.020",
        "in_flight_half",
        "Connection c1 is read again after 0.016 s:"
        " requests in flight have fallen to half of the limit.",
    ),
    "buffer": (
        "14:00:00.020",
        "buffer_half",
        "Connection c1 is read again after 0.02 s: buffered"
        " bytes have fallen to half of the share.",
    ),
    "seen": (
        "14:00:00.500",
        "observed_resume",
        "Connection c1 is read again after 0.5 s: the"
        " broker was seen to read it again; the broker itself paused it for 0.299 s.",
    ),
    "broker": (
        "14:00:01.630",
        "released",
        "Connection c1 is read again after 1.63 s: the limiter"
        " is back at its target (balance 1 message and 5,000 bytes).",
    ),
}


@pytest.mark.parametrize("cluster", ENDINGS)
def test_how_a_pause_ends(cluster, decided, capsys):
    found = texts(capsys, decided, "connection", "c1", *ALL, "--cluster", cluster)
    assert found[-1] == ENDINGS[cluster]


def test_many_pauses_of_a_connection_are_summed_up_and_one_is_shown(decided, capsys):
    found = texts(capsys, decided, "connection", "c2", *ALL, "--cluster", "seen")
    assert [text for _, _, text in found] == [
        "Connection c2 had 5 pauses in this time, 0.025 s in all and 0.005 s the longest, most"
        " often for a limit that is not known; one of them is explained here.",
        "Connection c2 was seen paused, for no limit that is known. Connection c2 on b1 is paused.",
        "Connection c2 is read again after 0.005 s: the broker was seen to read it again; the"
        " broker itself paused it for 0.005 s.",
    ]


MOST = "{} used most of it, with {} of the {} in that window"
CAUSES = {
    "group": (
        f"{ORDERS} published 250 messages (1 byte): resource group g used up its limit at a"
        f" publish of {ORDERS}, with 251 messages in the second before; balance -51 messages of"
        f" a limit of 200 messages per s of group g; {MOST.format(ORDERS, '96 %', 'messages')}."
        " Connection c1 on b1 is paused; its balance requires 0.265 s,"
        " with 1 producer waiting for the limiter."
    ),
    "broker": (
        f"{ORDERS} published 250 messages (1 byte): broker b1 used up its own limit at a publish"
        f" of {ORDERS}, with 251 messages in the second before; balance -151 messages and 4,998"
        f" bytes of a limit of 100 messages and 5,000 bytes per s; "
        f"{MOST.format(ORDERS, '96 %', 'messages')}. Connection c1 on b1 is paused;"
        " its balance requires 1.52 s, with 1 producer waiting for the limiter."
    ),
    "flight": (
        f"A publish of {ORDERS} brought connection c1 to its limit of requests in flight (limit 4,"
        f" at most 4 in that window); {MOST.format(ORDERS, '100 %', 'messages')}. Connection c1"
        " on b1 is paused."
    ),
    "buffer": (
        f"A publish of {MAIL} brought IO thread 0 of b1 above its share of buffered bytes (limit"
        f" 3,145,728, at most 4,000,000 in that window); {MOST.format(MAIL, '50 %', 'bytes')}."
        " Connection c1 on b1 is paused."
    ),
    "unknowing": (
        f"{EMPTIED}. Connection c1 on b1 is paused, since its client does not support the throttle"
        " command; its balance requires 1.51 s, with 1 producer waiting for the limiter."
    ),
}


@pytest.mark.parametrize("cluster", CAUSES)
def test_how_a_pause_comes_about(cluster, decided, capsys):
    found = texts(capsys, decided, "topic", ORDERS, *ALL, "--cluster", cluster)
    assert CAUSES[cluster] in [text for _, _, text in found]


def test_a_policy_that_comes_during_the_pause_is_listed(decided, capsys):
    found = texts(capsys, decided, "topic", ORDERS, *ALL, "--cluster", "changes")
    assert decided_by(found, "policy") == [
        (
            "14:00:00.400",
            "policy",
            'A policy comes into force on changes: {"scope": "topic", "name":'
            ' "t/ns/orders", "limits": {"publishRateInMsgs": 7}}.',
        )
    ]
    # The window knows the limit at its end only, which is not that of the pause.
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


def test_the_exchange_of_the_throttle_command(decided, capsys):
    found = texts(capsys, decided, "topic", ORDERS, *ALL, "--cluster", "observed")
    command = (
        "Producer 1 (p1) on {} receives a command to pause for {}, until 14:00:01.000"
        " (command {}, reason TopicProduceQuotaExceeded); {} announced so far on this connection."
    )
    waits = (
        "{} used up its publish limit, balance {} messages; connection c1 is not paused"
        " while the broker waits for the receipt (command {})."
    )
    assert [s for s in found if s[1] not in ("window",)] == [
        ("14:00:00", "bucket_empty", waits.format(ORDERS, "-150", 1)),
        ("14:00:00", "bucket_empty", command.format(ORDERS, "1 s", 1, "1 s")),
        (
            "14:00:00.040",
            "receipt_in_time",
            f"The receipt of command 1 for {ORDERS} arrived in time: connection c1 is not paused.",
        ),
        ("14:00:00.200", "bucket_empty", waits.format(ORDERS, "-131", 2)),
        ("14:00:00.200", "bucket_empty", command.format(ORDERS, "0.8 s", 2, "1.8 s")),
        (
            "14:00:00.300",
            "receipt_timeout",
            f"{ORDERS} used up its publish limit; its limit is 100 messages per s. No receipt"
            " arrived for command 2: connection c1 on b1 is paused.",
        ),
        (
            "14:00:00.300",
            "receipt_timeout",
            f"Paused with connection c1: {MAIL} (it has no limit).",
        ),
        (
            "14:00:00.350",
            "send_timeout",
            f"A send of producer 1 (p1) on {ORDERS} timed out"
            " (sequence id 17); its client sees ProducerThrottledException.",
        ),
        (
            "14:00:01.530",
            "released",
            "Connection c1 is read again after 1.23 s: the limiter is back"
            " at its target (balance 2 messages).",
        ),
    ]
    confirmed = texts(capsys, decided, "connection", "c1", *ALL, "--cluster", "supported")
    assert confirmed[0] == (
        "14:00:00",
        "bucket_empty",
        f"{ORDERS} used up its publish limit, balance -150"
        " messages; its client confirmed it, so connection c1 is not paused (command 1).",
    )


BACKLOG = "persistent://t/a/x"


def test_a_backlog_over_its_quota_and_what_follows(decided, capsys):
    at = ["--cluster", "east", "--window", "15s", "--at"]
    assert texts(capsys, decided, "topic", "t/a/x", *at, "2026-01-05T14:01:05Z") == [
        (
            "14:01:00",
            "size_exceeded",
            f"The backlog of {BACKLOG} is 40,000 bytes, 100 % of its"
            " size quota of 40,000 bytes (set at level namespace); its oldest message, of"
            " 2026-01-05T13:55:00Z (kept), has waited 360 s for subscription billing, 40 % of its"
            " time quota of 15 min (set at level namespace). The size quota is exceeded: its policy"
            " producer_request_hold disconnects 1 producer.",
        ),
        *[
            ("14:01:00", "size_exceeded", text)
            for text in (
                f"Subscription audit of {BACKLOG} is at 3:4 with 25 entries (12,500 bytes) in"
                " its backlog.",
                f"Subscription billing of {BACKLOG} is at 1:49 with 180 entries (40,000 bytes)"
                " in its backlog, the first of which has waited 360 s.",
                f"Reader tail of {BACKLOG} is at 1:-1 with 230 entries (45,000 bytes) in its backlog,"
                " the first of which has waited 360 s.",
            )
        ],
        (
            "14:01:10",
            "size_exceeded",
            f"Producer 2 of {BACKLOG} is refused with"
            " ProducerBlockedQuotaExceededError: the size quota is exceeded.",
        ),
    ]
    evicted = texts(
        capsys, decided, "subscription", "t/a/x", "billing", *at, "2026-01-05T14:04:00Z"
    )
    assert evicted[1:] == [
        (
            "14:04:00",
            "same_cursor",
            f"An eviction by size would move subscription billing of"
            f" {BACKLOG} from 3:4 to 3:14: 10 entries skipped, aiming at 7,200 bytes by a share of 42"
            " % in the first round; the backlog goes from 12,500 bytes to 7,500 bytes and the same"
            " subscription was the slowest twice in a row.",
        ),
        (
            "14:04:00",
            "size_exceeded",
            f"Subscription billing of {BACKLOG} is at 3:4 with 25"
            " entries (12,500 bytes) in its backlog; it shrinks by 90.28 bytes per s and 0.65 entries"
            " per s are acknowledged; at this rate the backlog is drained in 138.462 s, at"
            " 2026-01-05T14:06:18.461Z; its quota is reached.",
        ),
    ]


def test_the_forecast_of_a_subscription(decided, capsys):
    found = texts(
        capsys,
        decided,
        "subscription",
        "t/a/x",
        "billing",
        "--cluster",
        "east",
        "--at",
        "2026-01-05T14:02:30Z",
        "--window",
        "1s",
    )
    assert found == [
        (
            "14:02:00",
            "within_limits",
            f"The backlog of {BACKLOG} is 35,000 bytes, 88 % of its"
            " size quota of 40,000 bytes (set at level namespace); its oldest message, of"
            " 2026-01-05T13:59:00Z (ledger_close), has waited 180 s for subscription billing, 20 % of"
            " its time quota of 15 min (set at level namespace); this subscription determines"
            " the age.",
        ),
        (
            "14:02:00",
            "within_limits",
            f"Subscription billing of {BACKLOG} is at 1:99 with"
            " 130 entries (35,000 bytes) in its backlog, the first of which has waited 180 s; it grows"
            " by 41.67 bytes per s and 0.42 entries per s are acknowledged; at this rate a"
            " quota is reached in 120 s, at 2026-01-05T14:04:00Z.",
        ),
    ]


def test_a_large_message_in_both_kinds_of_client(decided, capsys):
    assert texts(capsys, decided, "message", "b-2", "--cluster", "east") == [
        (
            "14:00:05",
            "EVICTED",
            "Too many messages were pending for consumer c1: b-2, the"
            " oldest, is removed; its last chunk was 0 (of 2) [7:4, subscription s], 1 s after its"
            " first chunk; 1 position tracked for redelivery; the consumer then holds 1 incomplete"
            " message and counts 2.",
        ),
        (
            "14:00:06",
            "NO_FIRST_CHUNK+B2",
            "Chunk 1 (of 2) of b-2 arrived, but consumer c1 has no"
            " first chunk of the message: it is not used [7:6, subscription s]; 1 position tracked for"
            " redelivery; the consumer then holds 1 incomplete message and counts 2. A defect of"
            " released clients affects this outcome: the flow permit is not returned.",
        ),
    ]
    assert texts(capsys, decided, "message", "b-2", "--cluster", "west") == [
        (
            "14:00:06",
            "COMPLETE",
            "b-2 of producer b is complete for subscription s: 2 chunks"
            " from 7:4 to 7:6, the first delivered to consumer c1 at 14:00:04.000, the last 2 s later;"
            " 200 bytes of 200 declared (exact).",
        ),
    ]
    waiting = texts(capsys, decided, "message", "d-1", "--cluster", "west")
    assert waiting[0] == (
        "14:01:00",
        "window",
        "At the end of the window d-1 of producer d waits for chunk 1 of"
        " 2 in consumer c1 of subscription s: its first chunk (7:8) arrived at 14:00:08.000, 52 s"
        " before, its newest (7:8) at 14:00:08.000; 100 bytes of 200 have arrived; it expires after"
        " 14:01:08.000.",
    )
    assert waiting[-1] == (
        "14:02:00",
        "EXPIRED",
        "d-1 is incomplete for too long and expires; its last"
        " chunk was 0 (of 2) [7:8, subscription s], 112 s after its first chunk; 1 position"
        " acknowledged; the consumer then holds 0 incomplete messages.",
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


def test_producer_ids_of_a_principal(decided, capsys):
    at = ["--cluster", "east", "--window", "1s", "--at", "2026-01-05T14:00:00Z"]
    assert texts(capsys, decided, "principal", "User:alice", *at) == [
        (
            "14:00:00",
            "unseen_within_bound",
            "5 producer ids of user alice (5 batches of 1"
            " client) on b1 are counted as new, the last at 14:00:00.000. The bound is 2 new ids per"
            " quota window, set by the policy of the user; -1 tokens are left.",
        ),
        (
            "14:00:00",
            "rejected_over_bound",
            "Producer id 6 of user alice (client app, first"
            " seen on orders) is rejected: the bound is exceeded. The bound is 2 new ids per quota"
            " window, set by the policy of the user; -1 tokens are left; the throttle time of the"
            " client is 30 min.",
        ),
        (
            "14:00:00",
            "window",
            "In the 60 s from 14:00:00.000 user alice brought 5 new ids to"
            " b1, 1 batch were rejected and 0 batches had known ids; 246 % of the bound; -0.97 tokens"
            " left at its end; 1 filter of 40 bytes in all.",
        ),
    ]


def test_caches(decided, capsys):
    asked = ["--cluster", "cached", *ALL]
    assert texts(capsys, decided, "topic", "t/ns/a", *asked) == [
        (
            "14:00:00",
            "window",
            "In the 60 s from 14:00:00.000 the cache (expected_reads) would"
            " have answered 2 of 3 reads of persistent://t/ns/a, with 100 bytes from storage; 3 entries"
            " were evicted while reads were expected.",
        )
    ]
    assert texts(capsys, decided, "subscription", "t/ns/a", "s", *asked) == [
        (
            "14:00:00.003",
            "hit",
            "Up to 14:00:00.005 the cache (expected_reads) on b1 would"
            " have answered 1 of 2 reads of subscription s of persistent://t/ns/a.",
        )
    ]


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


def test_a_decision_in_a_gap_or_after_it_is_shown_with_it(decided, capsys):
    lost = ["--cluster", "lost", *ALL]
    pauses = texts(capsys, decided, "connection", "c1", *lost)
    assert (
        "14:00:00.300",
        "gap",
        "5 records of b1 are missing from 14:00:00.300 to 14:00:00.400:"
        " until 14:00:10.400 rate_limits does not know what they changed.",
    ) in pauses
    assert [text for _, rule, text in pauses if rule == "gap"][-1] == (
        "Connection c1 was seen paused for 0.3 s: then records of b1 are missing, and how long the"
        " pause lasted is not known."
    )
    assert texts(capsys, decided, "message", "x-1", *lost) == [
        (
            "14:00:05",
            "LOST_TO_SIGHT",
            "Records of the broker are missing: what became of x-1 is not"
            " known; its last chunk was 0 (of 2) [7:0, subscription s], 5 s after its first chunk; the"
            " consumer then holds 0 incomplete messages.",
        ),
        (
            "14:00:05",
            "gap",
            "Records of b are missing up to 14:00:05.000: until 14:02:05.000 chunks"
            " does not know what they changed.",
        ),
        (
            "14:00:06",
            "FIRST_UNSEEN",
            "Chunk 1 (of 2) of x-1 arrived; its first chunk may be among"
            " the records that are missing: whether it is used is not known [7:1, subscription s]; the"
            " consumer then holds 0 incomplete messages.",
        ),
    ]
