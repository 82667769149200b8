"""What the report says of client quotas: who uses up a shared limit, and who fills threads without one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from app.jobs.client_quotas.report import client_quotas
from app.read.relations import Warehouse
from app.show.report.model import Finding, Grid, Urgency
from app.show.report.report_reader import ReportReader, ReportSpan
from app.show.report.summary import all_findings
from tests.support.client_quota_rows import MINUTE, decision, measured, stats, usage
from tests.support.throttle_rows import write

Rows = list[dict[str, Any]]
STARVED: Rows = [
    decision(0, client_id="batch", charged=9000.0, throttle_ms=80_000),
    decision(1000, client_id="live", charged=500.0, throttle_ms=9_000),
    decision(2000, client_id="web", charged=500.0, throttle_ms=11_000, broker="b2"),
]
OF_STARVED = (
    "User etl was throttled 3 times on brokers b1 and b2 by its produce quota of 100 bytes per s (user), for"
    " 80 s at most; 90 % of the bytes over it were those of client batch of user etl, and 2 others"
    " with the same quota waited 20 s."
)


def reader(folder: Path, **tables: Rows) -> ReportReader:
    for name, rows in {"client_quota_stats": [stats(0)], **tables}.items():
        write(str(folder), name, rows)
    return ReportReader(Warehouse(str(folder)), ReportSpan())


def findings(folder: Path, **tables: Rows) -> list[Finding]:
    return all_findings(reader(folder, **tables))


def actions(found: Iterable[Finding]) -> list[tuple[str, str, Urgency, str | None]]:
    return [(a.remedy, a.reason, a.urgency, a.user) for one in found for a in one.actions]


def test_the_client_that_uses_up_a_shared_limit_is_named_with_what_the_others_wait(
    tmp_path: Path,
) -> None:
    found = findings(tmp_path, client_quota_decisions=STARVED)
    assert [one.sentence for one in found] == [OF_STARVED]
    assert actions(found) == [
        (
            "Give client batch of user etl a produce quota of its own",
            "90 % of the bytes over 100 bytes per s were its own, and 2 others with the same quota"
            " waited 20 s",
            Urgency.OTHERS,
            "etl",
        )
    ]


@pytest.mark.parametrize(
    ("changes", "sentence", "remedy", "urgency"),
    [
        (
            [{}, {"at_ms": 5, "charged": 1000.0}],
            "User etl was throttled 2 times on broker b1 by its produce quota of 100 bytes per s (user),"
            " for 1.0 s at most.",
            "Give user etl another produce quota, or find out why it exceeds it",
            Urgency.OWN,
        ),
        (
            [{}, {"client_id": "live"}, {"client_id": "web"}],  # a third each
            "User etl was throttled 3 times on broker b1 by its produce quota of 100 bytes per s (user),"
            " for 1.0 s at most.",
            "Give user etl another produce quota, or find out why it exceeds it",
            Urgency.OWN,
        ),
        (
            [
                {"user": "", "client": "web", "principal": principal, "bound_level": "client"}
                | {"charged": size, "quota_type": "request"}
                for principal, size in (("User:ann", 90.0), ("User:bob", 10.0))
            ],
            "Client web was throttled 2 times on broker b1 by its request quota of 100 % of a thread"
            " (client), for 1.0 s at most; 90 % of the request time over it were those of User:ann with"
            " client web, and 1 other with the same quota waited 1.0 s.",
            "Give User:ann with client web a request quota of its own",
            Urgency.OTHERS,
        ),
        (
            [{"verdict": "refused", "quota_type": "controller_mutation"}],
            "User etl was refused once on broker b1 by its controller_mutation quota of 100 partitions"
            " per s (user), for 1.0 s at most.",
            "Give user etl another controller_mutation quota, or find out why it exceeds it",
            Urgency.LOSS,
        ),
    ],
)
def test_limits_that_one_alone_does_not_use_up(
    tmp_path: Path, changes: Rows, sentence: str, remedy: str, urgency: Urgency
) -> None:
    rows = [decision(**{"at_ms": at, **change}) for at, change in enumerate(changes)]
    found = findings(tmp_path, client_quota_decisions=rows)
    assert [one.sentence for one in found] == [sentence]
    ((said, _, how, _),) = actions(found)
    assert (said, how) == (remedy, urgency)


def test_where_no_request_is_known_the_metrics_of_brokers_name_the_throttled(
    tmp_path: Path,
) -> None:
    rows = [
        stats(0, "calm"),
        *(measured(minute, throttled=4, bound_level="default_user") for minute in (0, 1)),
        measured(1, broker="b2", throttled=1, bound_level="default_user"),
        measured(2, throttled=0, bound_level="default_user"),
    ]
    found = findings(tmp_path, client_quota_stats=rows)
    assert [one.sentence for one in found] == [
        "User etl was throttled in 2 windows on brokers b1 and b2 by its produce quota of 100 bytes per"
        " s (default_user), as their metrics show."
    ]
    assert actions(found) == [
        (
            "Give user etl another produce quota, or find out why it exceeds it",
            "2 windows over 100 bytes per s (default_user)",
            Urgency.OWN,
            "etl",
        )
    ]


def test_a_limit_that_this_user_may_not_read_is_of_unknown_size(tmp_path: Path) -> None:
    unread = {"bound": None, "bound_level": "none", "utilisation": None}
    found = findings(tmp_path, client_quota_stats=[measured(0, throttled=1, **unread)])
    assert [one.sentence for one in found] == [
        "User etl was throttled in 1 window on broker b1 by its produce quota of unknown size (none), as"
        " their metrics show."
    ]
    assert [one[1] for one in actions(found)] == ["1 window over unknown size (none)"]


@pytest.mark.parametrize(
    ("changes", "took"),
    [
        ({}, "6.0 request handler threads of b1, 75 %"),
        ({"handler_time_ms": 2.0 * MINUTE}, "2.0 request handler threads of b1, 50 %"),
        ({"handler_time_ms": 0.9 * MINUTE}, ""),  # less than a thread
        (
            {"handler_time_ms": 0.1 * MINUTE, "bytes_": 6 * 60 * 2**20},
            "6.3 MB per s of b1, 75 %",
        ),
        ({"user": "etl", "client_id": "x"}, ""),  # has a limit
    ],
)
def test_who_is_among_the_largest_without_a_limit(
    tmp_path: Path, changes: dict[str, Any], took: str
) -> None:
    scan = {"user": "scan", "handler_time_ms": 6.0 * MINUTE, "api": "LIST_OFFSETS", **changes}
    rows = [
        *(usage(minute, **scan) for minute in (2, 3)),
        usage(2, bytes_=2 * 60 * 2**20, handler_time_ms=2.0 * MINUTE),
        usage(3, bytes_=60 * 60 * 2**20, handler_time_ms=30.0 * MINUTE),  # most of this minute's
        usage(2, "scan", broker="b2", handler_time_ms=9.0),
    ]
    found = findings(tmp_path, client_usage=rows)
    if not took:
        assert [one.sentence for one in found] == ["1 client with a quota, none throttled."]
        return
    took = f"took up to {took} of what all clients took, from 22:16:00 to 22:17:00"
    assert [one.sentence for one in found] == [
        f"Client app of user scan, which has no limit, {took}."
    ]
    what = "byte rate" if "MB" in took else "request_percentage"
    assert actions(found) == [
        (
            f"Set a {what} for client app of user scan",
            f"it has no limit and {took}",
            Urgency.OTHERS,
            "scan",
        )
    ]


def test_the_section_shows_who_shares_a_limit_and_who_has_the_threads(tmp_path: Path) -> None:
    rows = [*STARVED, decision(0, "alone")]
    section = client_quotas(
        reader(tmp_path, client_quota_decisions=rows, client_usage=[usage(0), usage(0, "web")])
    )
    assert section.title == "Client quotas of Kafka"
    grids = {part.title: part for part in section.parts if isinstance(part, Grid)}
    assert [
        (row["user"], row["sharer"], row["charged"], row["throttle_ms"])
        for row in grids["Who shares a limit that throttles"].rows
    ] == [
        ("etl", "batch", 9000.0, 80_000),
        ("etl", "live", 500.0, 9_000),
        ("etl", "web", 500.0, 11_000),
    ]
    assert [(row["principal"], row["share"]) for row in grids["Request handler threads"].rows] == [
        ("User:etl", 0.5),
        ("User:web", 0.5),
    ]
    assert [title for title, grid in grids.items() if grid.folded] == [
        "Largest users",
        "Request handler threads",
    ]
