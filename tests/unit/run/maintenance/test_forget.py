"""Names of persons leave every table, page and log; rows, batches and other names stay."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from app.cli import main
from app.config.settings import Settings
from app.read.databases import literal
from app.run.maintenance import forget_key, forgetting, logs, names, rewriting, vacuum
from app.run.maintenance.names import Name
from app.tables import json_documents, run_lock
from app.tables.definitions import TABLES
from app.tables.small_files import read_text, write_text
from tests.support.contents import contents
from tests.unit.run.maintenance.tables import found, plain, rows, writer

MakeSettings = Callable[..., Settings]
NAMES = {
    "principal": "Zoë O'Hara",
    "client_id": "zoe-laptop",
    "producer": "zoe-producer",
    "consumer": "zoe-consumer",
    "subscription": "zoe-sub",
    "connection": "zoe-host:9",
    "topic": "acme/people/zoe-orders",
}
OPTIONS = [word for kind, name in NAMES.items() for word in (f"--{kind.replace('_', '-')}", name)]
LIVES_ON = "zoe-laptop2"
NOBODY = {
    "acked_ranges",
    "acks",
    "action",
    "age_state",
    "api",
    "before",
    "first_hole",
    "group_state",
    "group_type",
    "missing_chunks",
    "set_back_from",
    "set_back_to",
    "stalled_at",
    "alert",
    "basis",
    "bound_level",
    "bound_source",
    "broker",
    "by_reason",
    "cause",
    "cluster",
    "column",
    "compared_job",
    "event_type",
    "expectation",
    "file",
    "first_position",
    "from_position",
    "inputs",
    "integrity",
    "job",
    "last_position",
    "limit_source_size",
    "limit_source_time",
    "limited_by_limiter",
    "limiter",
    "mark_delete",
    "marker_ids",
    "marker_position",
    "kind",
    "measure",
    "oldest_position",
    "orphaned",
    "outcome",
    "params_hash",
    "payload",
    "policy",
    "policy_hash",
    "position",
    "positions",
    "query",
    "quota_type",
    "read_pos",
    "reader_kind",
    "reason",
    "reason_code",
    "receipt_state",
    "resource_group",
    "retention_policy",
    "rule",
    "run_id",
    "runbook",
    "settings",
    "severity",
    "source_feed",
    "source_partition",
    "state",
    "sub_type",
    "switches",
    "table",
    "throttle_type",
    "timestamp_source",
    "to_position",
    "trace",
    "tracked",
    "transition",
    "verdict",
}
"""Columns of text that name no person, by their meaning."""
NAMELESS = {"cache_bakeoff", "chunk_payload_releases", "coverage_counts", "coverage_gaps"}
"""Tables with such columns only."""


def test_every_column_of_text_is_known_to_hold_names_or_not() -> None:
    texts = {
        column.name
        for table in TABLES.values()
        for column in table.columns
        if not (pa.types.is_primitive(column.type))
    }
    searched = {*names.VALUES, *names.DOCUMENTS, *names.TEXTS}.union(*names.COLUMNS.values())
    assert texts == searched | NOBODY
    assert not searched & NOBODY


def spelled(kind: str) -> str:
    """A name as records have it."""
    before, after = {
        "principal": ("User:", ""),
        "topic": ("persistent://", "-partition-3"),
    }.get(kind, ("", ""))
    return before + NAMES[kind] + after


def value(column: str) -> Any:
    """What a column of a row holds that names everybody."""
    everybody = list(map(spelled, NAMES))
    if column == "topic_bytes":
        return json.dumps({spelled("topic"): 90})
    if column in names.DOCUMENTS:
        return json.dumps({"scope": "user", "name": NAMES["principal"], "limits": {}})
    if column in names.TEXTS:
        return "; ".join([json.dumps(everybody), *everybody, LIVES_ON])
    if column in names.VALUES:
        return list(zip(NAMES, everybody, strict=True))
    if column == "uuid":
        return f"{NAMES['producer']}-12"
    if column == "user":
        return NAMES["principal"]
    if column == "entity":  # of a client of Kafka
        return f"{NAMES['principal']}/{NAMES['client_id']}"
    kinds = [kind for kind, columns in names.COLUMNS.items() if column in columns]
    if column.endswith("_topics"):
        return [spelled("topic"), "acme/people/other"]
    return spelled(kinds[0])


def named(name: str) -> pa.Table:
    """Two rows of a table, of which the second names everybody wherever it can."""
    table = rows(name, range(2))
    searched = {*names.VALUES, *names.DOCUMENTS, *names.TEXTS}.union(*names.COLUMNS.values())
    for number, field in enumerate(table.schema):
        if field.name in searched:
            values = [table.column(number)[0].as_py(), value(field.name)]
            table = table.set_column(number, field, pa.array(values, field.type))
    return table


def holding(warehouse: Path) -> dict[str, list[str]]:
    """By name the files of a warehouse that hold it."""
    held: dict[str, list[str]] = {}
    for path, content in contents(warehouse):
        kept = content.replace(LIVES_ON.encode(), b"")
        for name in NAMES.values():
            if name.encode() in kept or json.dumps(name)[1:-1].encode() in kept:
                held.setdefault(name, []).append(path)
    return held


def naming(settings: Settings, tables: Iterable[str]) -> Settings:
    """The tables have a batch that names everybody."""
    writing = writer(settings)
    for name in tables:
        writing.append(name, named(name), 0)
    return settings


@pytest.fixture
def settings(make_settings: MakeSettings) -> Settings:
    """A warehouse with a table of persons, and the archive."""
    made = naming(make_settings(), ("producer_id_owners", "events"))
    for batch in range(1, 3):
        writer(made).append("events", rows("events", range(3 * batch, 3 * batch + 3)), batch)
    return made


def forget(settings: Settings, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    """The answer of the command as JSON."""
    assert main(["forget", "--warehouse", settings.warehouse, "--json", *OPTIONS, *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_no_file_of_the_warehouse_holds_a_name_afterwards(
    make_settings: MakeSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = naming(make_settings(), set(TABLES) - {"chunk_payloads"})
    write_text(
        settings.location, "_weir/quality/events.html", "<pre>User:Zoë O&#x27;Hara, zoe-sub</pre>"
    )
    warehouse = Path(settings.warehouse)
    counted = forget(settings, capsys, "--dry-run")
    assert {t["table"]: t["rows"] for t in counted["tables"]} == {
        name: int(name not in NAMELESS) for name in TABLES if name != "chunk_payloads"
    }
    before = {name: found(settings, name).num_rows for name in TABLES if name != "chunk_payloads"}
    kept = forget(settings, capsys)
    assert kept["tables"] == counted["tables"]
    assert counted["pages"] == kept["pages"] == ["_weir/quality/events.html"]
    assert any(line.startswith("history") for line in kept["still_named"])
    assert set(holding(warehouse)) == set(NAMES.values())  # in the history
    erased = forget(settings, capsys, "--now")
    assert {t["rows"] for t in erased["tables"]} == {0}
    assert not any(line.startswith("history") for line in erased["still_named"])
    assert holding(warehouse) == {}
    assert before == {name: found(settings, name).num_rows for name in before}
    assert LIVES_ON in str(found(settings, "quarantine").column("raw").to_pylist())


LEFT = {
    "_weir/checkpoints/govern/weir-policies.json": '{"last": [{"name": "User:Zoë O\'Hara"}]}',
    "_weir/checkpoints/rate/weir-policies.json": '{"last": [{"name": "somebody"}]}',
    "_weir/configuration.json": '{"owners": ["User:Zo\\u00eb O\'Hara"]}',
    "_weir/manifest.json": '{"topics": {"zoe-subtopic": "1"}}',
    "_weir/polls/kafka_groups.kafka/polls/poll-1.jsonl": '{"group": "zoe-sub"}',
    "_weir/polls/kafka_groups.kafka/memory.json": '{"zoe-sub": 1}',
}


def test_what_keeps_a_name_is_listed_with_how_long(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in LEFT.items():
        write_text(settings.location, name, text)
    packed = Path(settings.warehouse, "_weir/polls/kafka_groups.kafka/polls/poll-2.jsonl.gz")
    packed.write_bytes(gzip.compress(b'{"group": "zoe-sub"}'))
    lines = forget(settings, capsys, "--now")["still_named"]
    found = [line.partition(": ") for line in lines if line.startswith("_weir")]
    assert [(place, until) for place, _, until in found] == [
        (
            "_weir/checkpoints/govern/weir-policies.json",
            "as long as the checkpoint: documents that the query has judged by",
        ),
        ("_weir/configuration.json", "until the next run writes its configuration"),
        (
            "_weir/polls/kafka_groups.kafka/memory.json",
            "until the broker no longer has them and a poll has seen that",
        ),
        (
            "_weir/polls/kafka_groups.kafka/polls/poll-1.jsonl and 1 more",
            "until a poll removes the file, keep_ms after it was written",
        ),
    ]
    for name, text in LEFT.items():
        assert Path(settings.warehouse, name).read_text("utf-8") == text, "listed, not changed"


def test_batches_stay_written_once(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    forget(settings, capsys, "--now")
    before = plain(found(settings, "events"))
    again = writer(settings)
    for batch in range(3):
        again.append("events", named("events"), batch)
    assert plain(found(settings, "events")) == before
    again.append("events", named("events"), 3)
    assert len(plain(found(settings, "events"))) == len(before) + 2


def test_what_was_appended_meanwhile_stays(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    appending = writer(settings, "other")
    thread = threading.Thread(
        target=lambda: [
            appending.append("producer_id_owners", named("producer_id_owners"), batch)
            for batch in range(20)
        ]
    )
    before = found(settings, "producer_id_owners").num_rows
    thread.start()
    while thread.is_alive():
        forget(settings, capsys)
    thread.join()
    forget(settings, capsys)
    rows_after = found(settings, "producer_id_owners")
    assert rows_after.num_rows == before + 40
    assert NAMES["principal"] not in rows_after.column("user").to_pylist()


def test_other_values_of_a_row_stay(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    before = found(settings, "events").to_pylist()
    forget(settings, capsys)
    changed = set()
    key = ("seq", "source_offset", "ts_wall_ms")
    after = {tuple(row[k] for k in key): row for row in found(settings, "events").to_pylist()}
    for row in before:
        changed |= {c for c, v in after[tuple(row[k] for k in key)].items() if v != row[c]}
    assert changed == {
        "principal",
        "client_id",
        "topic",
        "producer_name",
        "uuid",
        "subscription",
        "problem",
        "remarks",
        "consumer",
        "cnx_id",
        "client_host",
        "policy_json",
        "topic_bytes",
    }
    (row,) = (row for row in after.values() if str(row["principal"]).startswith("User:forgotten-"))
    assert row["topic"].startswith("persistent://acme/people/forgotten-")
    assert row["topic"].endswith("-partition-3") and row["uuid"].endswith("-12")
    assert json.loads(row["policy_json"])["name"] == row["principal"].removeprefix("User:")


def test_history_stays_while_a_run_is_at_work(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_lock.only_run(settings.location, ["govern"]):
        assert main(["forget", "--warehouse", settings.warehouse, "--now", *OPTIONS]) == 2
        assert "stop the run first" in capsys.readouterr().err
        forget(settings, capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one or more of --principal, --client-id"),
        (["--principal", "User:"], "'User:' is no name of a principal"),
        (["--client-id", ""], "'' is no name of a client id"),
    ],
)
def test_a_name_is_required(
    settings: Settings, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["forget", "--warehouse", settings.warehouse, *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", [["maintain"], ["forget", "--topic", "a/b/c"]])
def test_a_folder_that_is_not_there_stays_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    missing = tmp_path / "missing"
    assert main([*command, "--warehouse", str(missing)]) == 2
    assert "does not exist" in capsys.readouterr().err and not missing.exists()


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        ("principal", "User:etl", ["etl", "User:etl"]),
        ("principal", "a:b:c", ["b:c", "a:b:c"]),
        ("principal", "etl", ["etl"]),
        ("producer", "p-7", ["p-7"]),
        ("topic", "persistent://a/b/c-partition-12", ["a/b/c"]),
    ],
)
def test_a_name_may_be_given_as_records_have_it(kind: str, given: str, kept: list[str]) -> None:
    found = Name.given(kind, given, "key")
    assert [name.text for name in found] == kept
    assert len({name.pseudonym for name in found}) == 1


@pytest.mark.parametrize(
    ("kind", "forgotten", "entity", "kept"),
    [
        ("principal", "zoe", "zoe/app", "?/app"),
        ("principal", "zoe", "zoe", "?"),
        ("principal", "svc/zoe", "svc/zoe/app", "?/app"),
        ("principal", "zoe", "zoe/people/orders", "zoe/people/orders"),
        ("client_id", "zoe", "ann/zoe", "ann/?"),
        ("client_id", "zoe", "zoe/app", "zoe/app"),
        ("client_id", "zoe", "acme/people/zoe", "acme/people/zoe"),
        ("topic", "acme/people/zoe", "persistent://acme/people/zoe", "persistent://acme/people/?"),
    ],
)
def test_whose_use_was_forecast(kind: str, forgotten: str, entity: str, kept: str) -> None:
    """A topic, a user, a client id, or a user and client id of Kafka."""
    (name,) = Name.given(kind, forgotten, "key")
    sql = names.replacements([name], TABLES["forecasts"])["entity"]
    ((found,),) = duckdb.sql(f"SELECT {sql} FROM (SELECT {literal(entity)} AS entity)").fetchall()
    assert found.replace(name.pseudonym, "?") == kept


class Killed(BaseException):
    """The process ends here."""


WRITES = (
    (json_documents, "write_text"),  # the key
    (rewriting, "exchange"),
    (logs, "begin_anew"),
    (vacuum, "vacuum"),
    (forgetting, "write_text"),  # pages
    (forget_key, "remove"),
)


def killed_at(patch: pytest.MonkeyPatch, step: int) -> None:
    """End the process at a step: before or after one of its writes."""
    steps = count()

    def of(write: Callable[..., Any]) -> Callable[..., Any]:
        def writing(*arguments: Any, **options: Any) -> Any:
            if next(steps) == step:
                raise Killed
            done = write(*arguments, **options)
            if next(steps) == step:
                raise Killed
            return done

        return writing

    for module, name in WRITES:
        patch.setattr(module, name, of(getattr(module, name)))


PAGE = "_weir/quality/events.html"
KEY = "_weir/forget.json"


def pseudonyms(settings: Settings) -> list[str]:
    texts = [str(found(settings, name).to_pylist()) for name in ("producer_id_owners", "events")]
    texts.append(read_text(settings.location, PAGE) or "")
    return sorted(set(re.findall("forgotten-[0-9a-f]{12}", " ".join(texts))))


def test_a_repetition_after_any_kill_gives_the_same_pseudonyms(
    settings: Settings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_text(settings.location, PAGE, "<pre>zoe-app, zoe-sub</pre>")
    whole = Path(settings.warehouse)
    for step in count():
        part = settings.model_copy(update={"warehouse": str(tmp_path / "killed")})
        shutil.copytree(whole, part.warehouse)
        with pytest.MonkeyPatch.context() as patch:
            killed_at(patch, step)
            try:
                forget(part, capsys, "--now")
            except Killed:
                ended = False
            else:
                ended = True
        first = pseudonyms(part)
        forget(part, capsys, "--now")
        assert not (Path(part.warehouse) / KEY).exists()
        again = pseudonyms(part)
        assert set(first) <= set(again) and len(again) == len(NAMES), step
        assert read_text(part.location, PAGE) != "<pre>zoe-app, zoe-sub</pre>"
        if ended:
            break
        shutil.rmtree(part.warehouse)
    assert step > 12


def test_the_key_of_others_stays_until_they_are_forgotten(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        killed_at(patch, 3)
        forget(settings, capsys)
    first, key = pseudonyms(settings), Path(settings.warehouse, KEY)
    assert main(["forget", "--warehouse", settings.warehouse, "--principal", "bob"]) == 0
    assert key.exists()
    capsys.readouterr()
    forget(settings, capsys, "--dry-run")
    assert key.exists()
    forget(settings, capsys)
    assert not key.exists() and set(first) < set(pseudonyms(settings))


def test_a_damaged_key_is_refused(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    write_text(settings.location, KEY, '{"key": 1}')
    assert main(["forget", "--warehouse", settings.warehouse, *OPTIONS]) == 2
    said = capsys.readouterr().err
    assert "_weir/forget.json is damaged (key:" in said and "remove the file: names" in said
    assert pseudonyms(settings) == []


POLLS = "_weir/polls/kafka_groups.kafka/polls"
DAMAGES: dict[str, tuple[bytes | None, str | None]] = {
    "poll-1.jsonl.gz": (gzip.compress(b'{"group": "somebody"}' * 99)[:-9], "damaged"),
    "poll-2.jsonl.gz": (b"", None),
    "poll-3.jsonl.gz": (b"{not gzip}", "damaged"),
    "poll-4.jsonl": (b"\0\0", None),
    "poll-5.jsonl": ('{"group": "zoe-sub"}'.encode("utf-16"), "damaged"),
    "poll-6.jsonl.gz": (None, "Is a directory"),
    "poll-7.jsonl": (b"{not JSON", None),
    "poll-8.jsonl.gz": (gzip.compress(b"[]")[:12] + b"\xff" * 20, "damaged"),
    "poll-9.jsonl.gz": (gzip.compress(b"\xff\xfe{}"), "damaged"),
}


def test_a_damaged_file_of_a_poll_is_named_and_everything_else_is_done(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(settings.warehouse, POLLS)
    folder.mkdir(parents=True)
    for name, (content, _) in DAMAGES.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
    (folder / "poll-0.jsonl").symlink_to("gone")
    write_text(settings.location, PAGE, "<pre>zoe-sub</pre>")
    Path(settings.warehouse, "_weir/quality/other.html").write_bytes(b"\xff")
    page = Path(settings.warehouse, "_weir/quality/other.html").absolute()
    assert main(["forget", "--warehouse", settings.warehouse, "--json", *OPTIONS]) == 1
    told = json.loads(capsys.readouterr().out)
    until = "until a poll removes the file, keep_ms after it was written"
    assert told["not_searched"] == [
        f"{POLLS}/{name}: cannot be searched ({why}); may have the names {until}"
        for name, (_, why) in DAMAGES.items()
        if why
    ]
    assert [
        (t["table"], t["rows"], t["problem"]) for t in told["tables"] if t["rows"] or t["problem"]
    ] == [
        ("producer_id_owners", 1, None),
        ("events", 1, None),
        ("_weir/quality/other.html", 0, f"warehouse: {page} is damaged (not text)"),
    ]
    assert told["pages"] == [PAGE] and len(pseudonyms(settings)) == len(NAMES)
