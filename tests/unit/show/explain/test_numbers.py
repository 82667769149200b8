"""Every number of every sentence is one of its named numbers, and follows from its rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from app.read.relations import Warehouse, connect
from app.terminal.rows import plain
from tests.unit.show.explain.conftest import QUESTIONS

Json = dict[str, Any]
SECONDS = {"ns": 1e-9, "s": 1, "min": 60, "h": 3600, "d": 86400}
WORKED_OUT: dict[str, Callable[[Json, Json], Any]] = {
    "paused_ns": lambda end, rows: (
        (end.get("seen_until_ns") or end["ts_mono_ns"]) - rows["start"]["ts_mono_ns"]
    ),
    "due_ms": lambda start, _: start["ts_wall_ms"] + start["pause_model_ns"] / 1e6,
    "messages_share": lambda window, _: rate(window, "messages") / window["limit_msgs"],
    "reads": lambda window, _: window["hits"] + window["misses"],
    "peak": lambda window, _: max(
        1 - (window[f"min_balance_{unit}"] / window[f"limit_{unit}"])
        for unit in ("msgs", "bytes")
        if window[f"limit_{unit}"]
    ),
    "acks_positions": lambda event, _: len(event["acks"]),
    "tracked_positions": lambda event, _: len(event["tracked"]),
    "orphaned_positions": lambda event, _: len(event["orphaned"]),
    "last_offset": lambda lost, _: lost["to_offset"] - 1,
    "ahead": lambda lag, _: -lag["lag"],
    "shrink_rate": lambda sub, _: -sub["growth_rate"],
    "drained_ms": lambda sub, _: sub["pass_ms"] + sub["time_to_drain_s"] * 1000,
    "quota_ms": lambda sub, _: sub["pass_ms"] + sub["time_to_quota_s"] * 1000,
}
"""What is worked out from a row and the others of a sentence, by its name."""


def rate(window: Json, what: str) -> float:
    return window[what] * 1000 / window["window_ms"]


def share(row: Json, rows: Json) -> float:
    """Of a shared limit that a topic used, or of its own."""
    if "total" in rows:
        (unit,) = rows["total"]
        return row[unit] / rows["total"][unit]
    limits = (("messages", "limit_msgs"), ("bytes", "limit_bytes"))
    return max(rate(row, unit) / row[limit] for unit, limit in limits if row[limit])


WORKED_OUT["share"] = share


def means(number: dict[str, str], found: float) -> bool:
    """Whether a number as it is written means a value, but for rounding."""
    shown, unit = number["shown"].replace(",", ""), number["unit"]
    if unit in ("clock", "day"):
        moment = datetime.fromtimestamp(int(found) / 1000, UTC)
        text = moment.isoformat("T", "milliseconds").removesuffix("+00:00")
        return shown == text[11:] if unit == "clock" else shown == text.removesuffix(".000") + "Z"
    if unit == "n":
        written, rounded = float(shown.split()[0]), 0.005
        return abs(written - found) <= (rounded if abs(found) >= 0.01 else abs(found) * 0.5)
    if unit == "pct":
        if shown == "less than 0.1 %":
            return 0 < found < 0.001
        written = float(shown.removesuffix(" %")) / 100
        rounded = 0.0005 if 0 < abs(written) < 0.1 and "." in shown else 0.005
        return abs(written - found) <= rounded + 1e-12
    sign = -1 if shown.startswith("-") else 1
    parts = re.findall(r"([\d.]+) (ns|s|min|h|d)", shown)
    written = sign * sum(float(amount) * SECONDS[name] for amount, name in parts)
    seconds = found * {"ns": 1e-9, "ms": 1e-3, "s": 1}[unit]
    rounding = {"ns": 1e-9, "s": 1 if len(parts) > 1 else 0.0005, "min": 1, "h": 180, "d": 4320}
    return abs(written - seconds) <= rounding[parts[-1][1]] + 1e-12


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_every_number_follows_from_its_rows(question, answers):
    for sentence in answers[question]:
        rows = {name: row["values"] for name, row in sentence["rows"].items()}
        for number in sentence["numbers"]:
            of, _, name = number["name"].partition(".")
            found = rows[of][name] if name in rows[of] else WORKED_OUT[name](rows[of], rows)
            assert number["value"] == pytest.approx(found), (sentence["text"], number)
            assert means(number, number["value"]), (sentence["text"], number)


def test_every_way_of_working_out_a_number_occurs(answers):
    names = {
        number["name"].partition(".")[2]
        for sentences in answers.values()
        for sentence in sentences
        for number in sentence["numbers"]
    }
    assert set(WORKED_OUT) - names == set()


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_every_digit_is_of_a_named_number_or_of_a_name(question, answers):
    for sentence in answers[question]:
        names = {text for row in sentence["rows"].values() for text in strings(row["values"])}
        names |= {
            str(chunk)
            for row in sentence["rows"].values()
            for chunk in row["values"].get("missing_chunks") or ()
        }
        names |= {str(row["values"].get("partition", "")) for row in sentence["rows"].values()}
        text = sentence["text"]
        for known in sorted({*names, *(n["shown"] for n in sentence["numbers"])}, key=len)[::-1]:
            if known:
                text = re.sub(rf"(?<![\w.]){re.escape(known)}(?!\w)", "", text)
        assert not re.search(r"\d", text), (sentence["text"], text)


def strings(found: Any) -> list[str]:
    if isinstance(found, str):
        return [found]
    if isinstance(found, dict):
        return [text for part in found.values() for text in strings(part)]
    return [text for part in found for text in strings(part)] if isinstance(found, list) else []


def test_every_row_is_what_its_statement_gives(decided, answers):
    connection = connect(Warehouse(decided))
    rows = {
        row["sql"]: row
        for sentences in answers.values()
        for sentence in sentences
        for row in sentence["rows"].values()
    }
    assert len(rows) > 150 and None not in rows
    for sql, row in rows.items():
        found = connection.execute(sql)
        names = [column[0] for column in found.description]
        (values,) = found.fetchall()
        again = json.loads(json.dumps(plain(dict(zip(names, values, strict=True)))))
        for name, known in again.items():
            assert row["values"][name] == known, (sql, name)
        assert row["table"] in sql
        assert row["key"].items() <= row["values"].items()


def test_the_rows_of_a_sentence_are_a_few_and_the_decision_is_the_first(answers):
    for sentences in answers.values():
        assert sentences
        for sentence in sentences:
            decision = next(iter(sentence["rows"].values()))
            assert decision["values"].get("rule", sentence["rule"]) == sentence["rule"]
            assert len(sentence["rows"]) <= 6
