"""Whatever a file of a user holds: it is refused by file and line, or it is a document."""

from __future__ import annotations

import datetime
import os
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.config.alerts import AlertSettings
from app.config.documents import DEEPEST, MOST_BYTES, MOST_COPIES
from app.config.reading import lines_of, read_yaml
from app.config.settings import load_settings
from app.errors import UserError
from app.show.alerts.rule_files import rules_of
from app.show.policy.policy_command import documents_of

BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
)
MERGES = "\n".join(
    ["a0: &a0 {k0: 1, l0: 2}"]
    + [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}], k{i}: 1}}" for i in range(1, 12)]
)
HOSTILE = [
    pytest.param(text, message, id=name)
    for name, text, message in [
        ("a date that does not exist", "a: 1\nb: 2026-13-45", "line 2: '2026-13-45' is not"),
        ("an hour that does not exist", "a: 2026-01-01T25:00:00Z", "line 1: .* is not a valid t"),
        ("a number of 5,000 digits", f"a: {'9' * 5000}", "line 1: .* has more than 100 characters"),
        ("a number of 30 digits", f"a: {'9' * 30}", "line 1: .* is not a number of 64 bits"),
        ("a sexagesimal number", "a: 1" + ":59" * 20, "line 1: .* is not a number of 64 bits"),
        ("a hexadecimal number", f"a: 0x{'f' * 40}", "line 1: .* is not a number of 64 bits"),
        ("infinity", "a: 1\nb: .inf", "line 2: '.inf' is not a finite number"),
        ("no number", "a: .nan", "line 1: '.nan' is not a finite number"),
        ("a huge fraction", "a: 1.0e+999", "line 1: '1.0e.999' is not a finite number"),
        ("no integer", "a: !!int x", "line 1: 'x' is not a valid int"),
        ("no float", "a: !!float x", "line 1: 'x' is not a valid float"),
        ("no truth", "a: !!bool maybe", "line 1: 'maybe' is not a valid bool"),
        ("no time", "a: !!timestamp x", "line 1: 'x' is not a valid timestamp"),
        ("no bytes", "a: !!binary x", "line 1: "),
        ("no pairs", "a: !!omap [1]", "line 1: "),
        ("an object of Python", "a: !!python/object/apply:os.getcwd []", "line 1: could not"),
        ("deep lists", "a: " + "[" * 100_000, f"line 1: .* more than {DEEPEST} deep"),
        ("deep mappings", "".join(f"{'  ' * i}a:\n" for i in range(300)), "more than 50 deep"),
        ("an alias in itself", "a: &a [1, *a]", r"line 1: the alias \*a is a part"),
        ("a mapping in itself", "a: &a\n  b: *a", r"line 2: the alias \*a is a part of"),
        ("a key that is itself", "&a [1, *a]: 1", r"line 1: the alias \*a is a part of"),
        ("an anchor bomb", BOMB, f"line 5: aliases stand for more than {MOST_COPIES} values"),
        ("a bomb of merges", MERGES, f"line 5: aliases stand for more than {MOST_COPIES} values"),
        ("a repeated key", "a: 1\na: 2", "a is given twice, again in line 2"),
        ("a list as a key", "? [a]\n: 1", "line 1: found unhashable key"),
        ("a control character", "a: 1\nb: \x00", r"line 2: the character U\+0000 is not allowed"),
        ("an unknown alias", "a: *b", "line 1: found undefined alias"),
        ("an open bracket", "a: [1", "line 1: "),
        ("two documents", "a: 1\n---\nb: 2", "line 2: but found another document"),
        ("a tab", "a:\n\t- b", "line 2: "),
    ]
]


@pytest.mark.parametrize(("text", "message"), HOSTILE)
def test_a_hostile_document_is_refused_by_file_and_line(tmp_path, text, message):
    file = tmp_path / "weir.yaml"
    file.write_text(text, "utf-8")
    with pytest.raises(UserError, match=message) as refused:
        read_yaml(file, dict)
    assert str(refused.value).startswith(f"{file}: ")
    assert len(str(refused.value)) < 300 + len(str(file))
    assert lines_of(file) == []
    with pytest.raises(UserError):
        load_settings(file)


@pytest.mark.parametrize(("text", "message"), HOSTILE)
def test_so_it_is_in_files_of_policies_and_of_alert_rules(tmp_path, text, message):
    file = tmp_path / "policies.yaml"
    file.write_text(text, "utf-8")
    with pytest.raises(UserError, match=message):
        documents_of(file)
    with pytest.raises(UserError, match=message):
        rules_of(AlertSettings(rule_files=[str(file)]))


def test_what_is_no_text_is_refused(tmp_path):
    file = tmp_path / "weir.yaml"
    file.write_bytes(b"a: 1\nb: \xff")
    with pytest.raises(UserError, match=f"{file}: line 2: is not UTF-8 text"):
        read_yaml(file, dict)
    with file.open("wb") as large:
        large.truncate(MOST_BYTES + 1)
    with pytest.raises(UserError, match="has more than 8 MiB"):
        read_yaml(file, dict)
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="is no file"):
        read_yaml(pipe, dict)
    with pytest.raises(UserError, match="is no file"):
        read_yaml(tmp_path, dict)
    with pytest.raises(UserError, match="cannot be read"):
        read_yaml(tmp_path / "none.yaml", dict)


def test_aliases_and_merges_of_an_ordinary_size_are_read(tmp_path):
    file = tmp_path / "weir.yaml"
    file.write_text("base: &b {a: 1, c: [x]}\nfirst: {<<: *b, d: 2}\nsecond: *b\nat: 2026-01-05\n")
    assert read_yaml(file, dict) == {
        "base": {"a": 1, "c": ["x"]},
        "first": {"a": 1, "c": ["x"], "d": 2},
        "second": {"a": 1, "c": ["x"]},
        "at": datetime.date(2026, 1, 5),
    }


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.dates(),
    st.datetimes(),
    st.sampled_from(["topic", "namespace", "user", "*", "acme/orders", "publishRateInMsgs"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.text(max_size=5), st.integers(), st.dates()), inner, max_size=3
        ),
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "scope",
        "name",
        "limits",
        "publishRateInMsgs",
        "backlog_quota",
        "message_age",
        "limitTime",
        "policy",
        "resource_group",
        "producer_ids_rate",
        "managedLedgerCacheSizeMB",
    ]
)
DOCUMENTS = st.recursive(
    st.one_of(VALUES, st.dictionaries(KEYS, VALUES, max_size=4)),
    lambda inner: st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=6,
)


@given(st.lists(DOCUMENTS, max_size=3))
@example([{"scope": "topic", "name": "acme/a/b", "limits": {"publishRateInMsgs": 1e308}}])
def test_any_value_in_a_policy_is_taken_or_refused(tmp_path_factory, documents: list[Any]):
    file = tmp_path_factory.mktemp("policies") / "p.yaml"
    file.write_text(yaml.safe_dump(documents), "utf-8")
    try:
        found = documents_of(file)
    except UserError:
        return
    assert len(found.every) + len({m.one.key for m in found.mistakes}) == len(documents)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "warehouse",
                "source",
                "policies",
                "policy_files",
                "shadows",
                "queries",
                "alerts",
                "owners",
                "rate_limits",
                "backlog",
                "chunks",
                "metrics",
                "stats_window_ms",
                "allowed_lateness_ms",
            ]
        ),
        VALUES,
        max_size=4,
    )
)
@settings(max_examples=60)
def test_any_value_in_a_configuration_is_taken_or_refused(tmp_path_factory, document: Any):
    file = tmp_path_factory.mktemp("settings") / "weir.yaml"
    file.write_text(yaml.safe_dump(document), "utf-8")
    try:
        load_settings(file)
    except UserError as error:
        assert str(error)
