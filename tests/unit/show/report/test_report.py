"""The content of the command `report` for a warehouse, and the parts of its page."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.config.described import described
from app.config.settings import Settings, load_settings
from app.read.questions import QUESTIONS
from app.tables import last_configuration
from app.tables.definitions import TABLES
from tests.support.ready_questions import MINUTE, NS, check, put, stats
from tests.support.report_warehouse import IMAGE, LONG, SCRIPT, fill
from tests.support.throttle_rows import START_MS, event, write

SECTIONS = [
    "what-happened",
    "alerts",
    "culprits",
    "timeline",
    "quotas",
    "backlogs",
    "principals",
    "large-messages",
    "cache",
    "quality",
    "configuration",
    "runbooks",
]
Content = dict[str, Any]


def content(capsys: pytest.CaptureFixture[str], warehouse: str, *options: str) -> Content:
    """What `report --json` answers."""
    capsys.readouterr()
    assert main(["report", "--json", "--warehouse", warehouse, *options]) == 0
    answer: Content = json.loads(capsys.readouterr().out)
    return answer


def part(answer: Content, section: str, title: str) -> list[Content]:
    """The rows of one table or chart."""
    (found,) = (p for p in answer["sections"][section]["parts"] if p.get("title") == title)
    rows: list[Content] = found["rows"]
    return rows


@pytest.mark.usefixtures("both_sizes")
def test_every_sentence_number_and_row_of_a_report(
    warehouse: str,
    capsys: pytest.CaptureFixture[str],
    golden: Callable[[str, str], None],
) -> None:
    """Regenerate with `pytest --regenerate`. What the rows of report_warehouse.py amount to: use of
    the publish limit is a minute's mean of 150 % and 50 %, and lowest balances of 0 and 9 of 100;
    a connection that is not resumed is paused up to the end of what the report covers."""
    answer = content(capsys, warehouse)
    assert list(answer["sections"]) == SECTIONS
    covers, _, made = answer["covers"].partition("; made ")
    assert made
    lines = [answer["verdict"], covers, *map(json.dumps, [*answer["numbers"], *answer["actions"]])]
    for name, section in answer["sections"].items():
        lines += ["", f"# {name}: {section['title']}", *section["sentences"]]
        for shown in section["parts"]:
            lines += [f"## {shown['title']}"]
            for row in shown.get("rows", ()):
                if row.pop("committed", None):
                    del row["bytes"]  # of files, which differ from run to run
                lines.append(json.dumps(row))
    text = "\n".join([*lines, ""]).replace(warehouse, "WAREHOUSE")
    golden("report/every_section.txt", text.replace(LONG.rpartition("/")[2], "LONG"))


@pytest.mark.usefixtures("both_sizes")
def test_a_span_leaves_out_what_lies_outside(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = content(
        capsys, warehouse, "--from", "2023-11-14T22:15:00Z", "--to", "2023-11-14T22:16:00Z"
    )
    assert (answer["from_ms"], answer["to_ms"]) == (START_MS + MINUTE, START_MS + 2 * MINUTE)
    culprits = part(answer, "culprits", "Top culprits")
    assert [(o["kind"], o["value"]) for o in culprits if o["value"]] == [("own limit", 5.0)]
    assert answer["sections"]["cache"]["sentences"][0] == (
        "No rows of cache_stats fall into the time of this report."
    )
    assert part(answer, "cache", "Cache curves")  # not of event time


def test_tables_are_read_as_they_were(
    tmp_warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_warehouse, "topic_throttle_stats", [stats(0, SCRIPT, culprit_ns=NS)])
    log = Path(tmp_warehouse, "topic_throttle_stats", "_delta_log", f"{0:020}.json")
    first = re.search(r'"timestamp":(\d+)', log.read_text())
    assert first is not None
    write(tmp_warehouse, "topic_throttle_stats", [stats(5, SCRIPT, culprit_ns=NS)])
    later = log.with_name(f"{1:020}.json")
    later.write_text(
        re.sub(r'"timestamp":\d+', f'"timestamp":{int(first[1]) + 1000}', later.read_text())
    )
    assert content(capsys, tmp_warehouse)["to_ms"] == START_MS + 6 * MINUTE
    then = content(capsys, tmp_warehouse, "--as-of", first[1])
    assert then["to_ms"] == START_MS + MINUTE
    assert "tables as of" in then["covers"]


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            "throttle_events",
            "topic_throttle_stats",
            "limiter_stats",
            "producer_id_decisions",
            "backlog_checks",
            "chunk_messages",
            "cache_stats",
            "quarantine",
            "quality_results",
            "alerts",
        }
    ),
)
def test_a_table_that_is_missing_leaves_the_other_sections(
    name: str, warehouse: str, tmp_warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(warehouse, tmp_warehouse)
    Path(tmp_warehouse, name).rename(Path(tmp_warehouse, "_weir", name))
    answer = content(capsys, tmp_warehouse)
    gone = {
        "topic_throttle_stats": "culprits",
        "throttle_events": "timeline",
        "backlog_checks": "backlogs",
    }.get(name)
    assert list(answer["sections"]) == [key for key in SECTIONS if key != gone]
    assert all(section["sentences"] for section in answer["sections"].values())


def test_an_empty_warehouse_has_a_page_without_data(
    tmp_warehouse: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(tmp_warehouse, "_weir").mkdir(parents=True)
    out = tmp_path / "report.html"
    assert main(["report", "--warehouse", tmp_warehouse, "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        "There is no data yet: no job has completed a window."
    )
    text = out.read_text("utf-8")
    for key in ("culprits", "principals", "large-messages", "cache", "runbooks"):
        assert f'id="{key}"' not in text
    assert "Nothing has been written to alerts yet." in text
    assert "<figure" not in text


def test_a_quiet_fleet_has_no_findings(
    tmp_warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(
        tmp_warehouse,
        {
            "topic_throttle_stats": [stats(0, SCRIPT)],
            "backlog_checks": [check(SCRIPT, 0, limit_s=60, time_usage=0.1)],
        },
    )
    answer = content(capsys, tmp_warehouse)
    assert answer["verdict"] == (
        "No quota was breached, and no topic was paused for the limits of others."
    )
    assert not any(number["bad"] for number in answer["numbers"])
    assert answer["sections"]["culprits"]["sentences"] == ["None of 1 topic was paused."]


def test_the_configuration_that_a_run_kept_is_shown_without_secrets(
    make_settings: Callable[..., Settings], tmp_warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_warehouse, "topic_throttle_stats", [stats(0, SCRIPT)])
    settings = make_settings(storage_options={"aws_secret_access_key": "hunter2"})
    last_configuration.keep(settings.location, described(settings, START_MS))
    answer = content(capsys, tmp_warehouse)
    assert answer["config_hash"] == settings.config_hash()
    section = answer["sections"]["configuration"]
    assert section["sentences"][0].startswith(
        f"Configuration {settings.config_hash()}, in force since 2"
    )
    assert section["sentences"][1].startswith("Some rows of rate_limits were decided under other")
    assert "aws_secret_access_key" in json.dumps(section) and "hunter2" not in json.dumps(section)


def test_a_configuration_that_is_named_comes_before_the_kept_one(
    make_settings: Callable[..., Settings],
    tmp_warehouse: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    last_configuration.keep(make_settings().location, described(make_settings(), 1))
    file = tmp_path / "weir.yaml"
    file.write_text(f"warehouse: {tmp_warehouse}\nshards: 4\n")
    answer = content(capsys, tmp_warehouse, "--config", str(file))
    named = load_settings(file).config_hash()
    assert answer["config_hash"] == named != make_settings().config_hash()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"config_hash": 1}'])
def test_a_kept_configuration_that_cannot_be_read_is_left_out(
    text: str, make_settings: Callable[..., Settings]
) -> None:
    settings = make_settings()
    last_configuration.keep(settings.location, described(settings, 1))
    Path(settings.warehouse, last_configuration.NAME).write_text(text)
    assert last_configuration.load(settings.location) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "report: --out is missing"),
        (
            ["--json", "--from", "2024-01-02", "--to", "2024-01-02"],
            "report: --from is not before --to",
        ),
        (["--json", "--from", "soon"], "--from soon: is not a time"),
        (["--out", "nowhere/r.html"], "--out nowhere/r.html: the folder"),
    ],
)
def test_a_mistake_is_reported_with_exit_code_2(
    options: list[str], message: str, warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--warehouse", warehouse, *options]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and "Traceback" not in err


def test_alerts_that_fire_come_by_severity_and_the_others_are_folded(
    tmp_warehouse: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def alert(name: str, severity: str, state: str, at_ms: int, **more: Any) -> Content:
        return {
            "alert": name,
            "labels": [],
            "state": state,
            "at_ms": START_MS + at_ms,
            "since_ms": START_MS,
            "severity": severity,
            "summary": f"{name} holds",
            "number": 1,
            "checked_ms": START_MS,
            **more,
        }

    put(
        tmp_warehouse,
        {
            "alerts": [
                alert(
                    "newest",
                    "warning",
                    "firing",
                    9,
                    runbook="app/jobs/rate_limits/runbooks/publish-limit.md",
                ),
                alert("gone", "critical", "resolved", 8, runbook="docs/../../../etc/passwd"),
                alert("worst", "critical", "firing", 1, runbook="https://runbooks.example/worst"),
                alert("note", "info", "firing", 7, runbook="javascript:alert(1)"),
                alert("soon", "warning", "pending", 9, runbook="docs/runbooks/no-such-page.md"),
            ]
        },
    )
    answer = content(capsys, tmp_warehouse)
    assert [a["alert"] for a in part(answer, "alerts", "Firing, critical first")] == [
        "worst",
        "newest",
        "note",
    ]
    assert [a["alert"] for a in part(answer, "alerts", "2 alerts not firing")] == ["soon", "gone"]
    out = tmp_path / "report.html"
    assert main(["report", "--warehouse", tmp_warehouse, "--out", str(out)]) == 0
    text = out.read_text("utf-8")
    folded = text.index("<details><summary>2 alerts not firing")
    for name, is_folded in (("worst", False), ("newest", False), ("soon", True), ("gone", True)):
        assert (text.index(f"{name} holds") > folded) == is_folded
    links = [
        attributes["href"]
        for tag, attributes in Elements(text).found
        if tag == "a" and not str(attributes["href"]).startswith("#")
    ]
    assert links == ["https://runbooks.example/worst"]
    (runbook,) = answer["sections"]["runbooks"]["parts"]
    assert runbook["title"] == "publish-limit" and "## What to do" in runbook["text"]
    assert '<a href="#publish-limit">' in text and 'id="publish-limit"><p>Something uses' in text


def test_runbooks_travel_with_the_page(page: Path) -> None:
    elements = Elements(page.read_text("utf-8"))
    ids = {attributes.get("id") for _, attributes in elements.found}
    links = [
        str(attributes["href"])[1:]
        for tag, attributes in elements.found
        if tag == "a" and str(attributes["href"]).startswith("#")
    ]
    assert {"backlog-quota", "noisy-neighbour-victim"} <= {*links} <= ids
    assert elements.text.count("How to confirm") > 4


@pytest.mark.parametrize(
    ("rows", "ending"),
    [
        ([], "; no alert has been evaluated."),
        (
            [("other", LONG, "firing")],
            ". It has no alert: publish-limit asks for half of a window held back, or a mean at "
            "the limit; the worst window was held back for 1.7 % of its time.",
        ),
        ([("publish-limit", SCRIPT, "resolved")], ": its alert publish-limit is resolved."),
        (
            [("a", SCRIPT, "resolved"), ("publish-limit", SCRIPT, "firing")],
            ": its alert publish-limit is firing.",
        ),
    ],
)
def test_the_top_culprit_of_the_hour_has_an_alert_or_the_reason_why_not(
    rows: list[tuple[str, str, str]],
    ending: str,
    tmp_warehouse: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    earlier = stats(0, LONG, culprit_ns=50 * NS)
    write(tmp_warehouse, "topic_throttle_stats", [earlier, stats(61, SCRIPT, culprit_ns=NS)])
    alerts = [
        {"alert": name, "labels": [("topic", topic)], "state": state, "number": 1}
        for name, topic, state in rows
    ]
    if alerts:
        put(tmp_warehouse, {"alerts": alerts})
    name = SCRIPT.removeprefix("persistent://")
    sentences = content(capsys, tmp_warehouse)["sections"]["culprits"]["sentences"]
    assert sentences[1] == (
        f"In the last hour {name} was held back longest by its own limit, for 1.0 s{ending}"
    )


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--from", "2023-11-14T22:14:00Z", "--to", "2023-11-14T22:15:00Z"),
        ("--as-of", "2030-01-01"),
    ],
)
def test_commands_below_tables_work_when_they_are_pasted(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse, out = tmp_path / "a folder's warehouse", tmp_path / "report.html"
    fill(str(warehouse))
    assert main(["report", "--warehouse", str(warehouse), "--out", str(out), *options]) == 0
    shown = re.findall(r"All of it: <code>(.*?)</code>", out.read_text("utf-8"))
    assert len(shown) > 8
    for line in shown:
        words = shlex.split(html.unescape(line))
        assert words[:2] == ["./spark-submit.sh", "query"]
        assert main(words[1:]) == 0, (line, capsys.readouterr().err)
        capsys.readouterr()
        question = QUESTIONS.get(words[2])
        narrowed = question is not None and "until" in {p.name for p in question.params}
        assert ("until=" in line) == ("--to" in options and narrowed), line


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_one_file_without_scripts_and_addresses(page: Path) -> None:
    elements = Elements(page.read_text("utf-8"))
    assert not {tag for tag, _ in elements.found} & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "image",
        "use",
        "foreignobject",
        "b onmouse",
    }
    for tag, attributes in elements.found:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        links = [attributes.get(name) for name in ("href", "src", "xlink:href")]
        assert all(
            link is None
            or link[0] == "#"
            or link in ("data:,", "warehouse/_weir/quality/index.html")
            for link in links
        ), (tag, attributes)
    assert "url(" not in page.read_text("utf-8") and "@import" not in page.read_text("utf-8")
    for name in (SCRIPT, IMAGE):
        assert name.removeprefix("persistent://") in elements.text
    assert "{{ 7 * 7 }}" in elements.text


def test_no_id_stands_in_the_page_twice(page: Path) -> None:
    ids = [a["id"] for _, a in Elements(page.read_text("utf-8")).found if "id" in a]
    assert len(ids) == len(set(ids)) and {*SECTIONS} <= {*ids}


def test_a_page_stays_small_however_much_happened(tmp_warehouse: str, tmp_path: Path) -> None:
    topics = [f"persistent://tenant/namespace-with-a-name/topic-{n}" for n in range(160)]
    write(
        tmp_warehouse,
        "topic_throttle_stats",
        [
            stats(minute, topic, collateral_ns=NS, culprit_ns=NS, culprit_times=1)
            for topic in topics
            for minute in range(0, 150, 10)
        ],
    )
    write(
        tmp_warehouse,
        "throttle_events",
        [
            event(
                at * 60_000 + offset,
                action,
                cnx_id=f"c{connection}",
                culprit_topic=topics[at],
                topic=topics[at],
                collateral_topics=topics[at + 1 : at + 9],
            )
            for connection in range(14)
            for at in range(150)
            for offset, action in ((0, "mark"), (500, "unmark"))
        ],
    )
    write(
        tmp_warehouse,
        "backlog_checks",
        [
            {
                c: {**check(topic, minute * MINUTE, age_s=minute, time_usage=minute / 100)}.get(c)
                for c in TABLES["backlog_checks"].names
            }
            for topic in topics[:20]
            for minute in range(150)
        ],
    )
    out = tmp_path / "report.html"
    assert main(["report", "--warehouse", tmp_warehouse, "--out", str(out)]) == 0
    assert out.stat().st_size < 2_000_000
