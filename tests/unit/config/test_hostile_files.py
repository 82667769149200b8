"""Whatever a file of a user holds: it is refused by file and line, or it is a document that can be
written."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, settings
from hypothesis import given as drawn_from
from hypothesis import strategies as st

from app.config import documents
from app.config.alerts import AlertSettings
from app.config.documents import DEEPEST, MOST_BYTES, MOST_COPIES, MOST_VALUES, text_of, value_of
from app.config.owners import owner_documents
from app.config.reading import LineNumbers, read_yaml
from app.config.settings import Settings, load_settings
from app.engine import policy_watch
from app.engine.policy_watch import Origin, PolicyWatch
from app.errors import UserError
from app.setup.validate import validate
from app.show.alerts.rule_files import rules_of
from app.show.policy.policy_command import check, documents_of
from app.whatif.policy_test.cases import test_policies as play
from tests.reference.words import words

BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
)
MERGES = "\n".join(
    ["a0: &a0 {k0: 1, l0: 2}"]
    + [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}], k{i}: 1}}" for i in range(1, 12)]
)
LONG = "a" * 5000
FEW_VALUES = 20_000
"""The bound in tests that read a document in many ways."""
HOSTILE = [
    pytest.param(text, message, id=name)
    for name, text, message in [
        ("a date that does not exist", "a: !!timestamp 2026-13-45", "line 1: .* type timestamp"),
        ("a time", "a: 1\nb: !!timestamp 2026-01-01T25:00:00Z", "line 2: .* is of type timestamp"),
        ("a number of 5,000 digits", f"a: {'9' * 5000}", "line 1: .* has more than 100 characters"),
        ("a number of 30 digits", f"a: {'9' * 30}", "line 1: .* is not a number of 64 bits"),
        ("a sexagesimal number", "a: 1" + ":59" * 20, "line 1: .* is not a number of 64 bits"),
        ("a hexadecimal number", f"a: 0x{'f' * 40}", "line 1: .* is not a number of 64 bits"),
        ("infinity", "a: 1\nb: .inf", "line 2: '.inf' is not a finite number"),
        ("no number", "a: .nan", "line 1: '.nan' is not a finite number"),
        ("a huge fraction", "a: 1.0e+999", "line 1: '1.0e.999' is not a finite number"),
        ("no integer", "a: !!int x", "line 1: 'x' is not a valid int"),
        ("an empty integer", "a: !!int ''", "line 1: '' is not a valid int"),
        ("no float", "a: !!float x", "line 1: 'x' is not a valid float"),
        ("no truth", "a: !!bool maybe", "line 1: 'maybe' is not a valid bool"),
        ("bytes", "a: !!binary YQ==", "line 1: 'YQ==' is of type binary"),
        ("a set", "a: !!set {b}", "line 1: this mapping is of type set"),
        ("pairs", "a: !!omap [b: 1]", "line 1: this sequence is of type omap"),
        ("a list that is called text", "a: !!str [b]", "line 1: this sequence is of type str"),
        ("a mapping that is called null", "a: !!null {}", "line 1: this mapping is of type null"),
        ("a text that is called a mapping", "a: !!map b", "line 1: 'b' is of type map"),
        ("an unknown type", "a: !b c", "line 1: 'c' is of type !b"),
        ("a type of 5,000 characters", f"a: !{LONG} c", "line 1: 'c' is of type !a{39} "),
        ("an object of Python", "a: !!python/object/apply:os.getcwd []", "line 1: .* type python/"),
        ("deep lists", "a: " + "[" * 100_000, f"line 1: .* more than {DEEPEST} deep"),
        ("deep mappings", "".join(f"{'  ' * i}a:\n" for i in range(300)), "more than 50 deep"),
        ("deep lists of lines", "- " * 100_000, f"line 1: .* more than {DEEPEST} deep"),
        (
            "many values",
            f"a: [{'x,' * FEW_VALUES}]",
            f"line 1: has more than {FEW_VALUES:,} values",
        ),
        ("many anchors", f"a: [{','.join(map('&a{} x'.format, range(FEW_VALUES)))}", "line 1: "),
        ("many merges", "<<: {}\n" * 5_000, "line 2: '<<' is given twice"),
        ("many directives", "%TAG !a! x\n" * 100_000 + "---", "more than 10 lines begin with %"),
        ("many directives after CR", "%foo\r" * 100_000 + "---", "more than 10 lines begin with"),
        ("many documents", "---\n" * 100_000, "line 2: but found another document"),
        ("an alias in itself", "a: &a [1, *a]", r"line 1: the alias \*a is a part"),
        ("a mapping in itself", "a: &a\n  b: *a", r"line 2: the alias \*a is a part of"),
        ("a key that is itself", "&a [1, *a]: 1", r"line 1: the alias \*a is a part of"),
        ("an anchor bomb", BOMB, f"line 5: aliases stand for more than {MOST_COPIES} values"),
        ("a bomb of merges", MERGES, f"line 5: aliases stand for more than {MOST_COPIES} values"),
        ("a merge of a text", "<<: a", "line 1: expected a mapping or list of mappings"),
        ("a repeated key", "a: 1\na: 2", "line 2: 'a' is given twice"),
        ("a repeated key in another notation", "a: 1\n'a': 2", "line 2: 'a' is given twice"),
        ("a list as a key", "? [a]\n: 1", "line 1: this sequence is no text, as a key is"),
        ("a number as a key", "a: {1: 2}", "line 1: '1' is no text, as a key is; put it in quotes"),
        (
            "a truth as a key",
            "a: 1\non: 1",
            "line 2: 'on' is no text, as a key is; put it in quotes",
        ),
        ("NUL", "a: 1\nb: \x00", r"line 2: the character U\+0000 is not allowed"),
        ("NUL after text of two bytes", "\u00e9: 1\nb: \x00", r"line 2: the character U\+0000 is"),
        ("an escape of NUL", 'a: 1\nb: ["x\\0"]', r"line 2: the character U\+0000 is not allowed"),
        ("a key with NUL", '"a\\0": 1', r"line 1: the character U\+0000 is not allowed"),
        ("an escape of a control character's byte", "a: \x9b", r"line 1: the character U\+009B is"),
        ("half a surrogate", 'a: "\\ud800"', "line 1: found invalid Unicode character escape code"),
        ("a pair of surrogates", '"\\ud83d\\ude00": 1', "line 1: found invalid Unicode character"),
        ("a character beyond the last", 'a: "\\U00110000"', "line 1: found invalid Unicode"),
        ("an unknown alias", "a: *b", "line 1: found undefined alias"),
        ("an open bracket", "a: [1", "line 1: "),
        ("two documents", "a: 1\n---\nb: 2", "line 2: but found another document"),
        ("a tab", "a:\n\t- b", "line 2: "),
        ("bytes that are no UTF-8", b"a: 1\nb: \xff", "line 2: is not UTF-8 text"),
        ("half a surrogate in bytes", b"a: 1\nb: \xed\xa0\x80", "line 2: is not UTF-8 text"),
        ("UTF-16", "a: 1".encode("utf-16"), "line 1: is not UTF-8 text"),
        ("UTF-16 without a mark", "a: 1".encode("utf-16-le"), "line 1: "),
        ("UTF-32", "a: 1".encode("utf-32"), "line 1: is not UTF-8 text"),
    ]
]
MOST_S = 60
"""Of a reading on a machine with other work; the largest document takes about 3 s on a quiet one."""


def given(file: Path, content: str | bytes) -> Path:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


class Watched:
    """A run's configuration, and what its watch says of edits."""

    def __init__(self, folder: Path) -> None:
        self.config = given(folder / "watched.yaml", "policy_files: [limits.yaml]\n")
        self.limits = given(folder / "limits.yaml", LIMITS.format(rate=1))
        self.heard: list[str] = []
        hear = self.heard.append
        self.watch = PolicyWatch(
            load_settings(self.config), hear, hear, Origin(self.config, self.load)
        )
        self.begun = self.watch.now

    def load(self) -> Settings:
        return load_settings(self.config)

    def looked(self) -> list[str]:
        """What is said of the files as they are now."""
        self.heard.clear()
        until = time.monotonic() + MOST_S
        for _ in range(2):
            begun = time.monotonic()
            self.watch.look()
            assert time.monotonic() - begun < 3 * policy_watch.PATIENCE_S
            while self.watch.busy:
                assert time.monotonic() < until
                time.sleep(0.01)
                self.watch.look()
        return self.heard


LIMITS = "- {{scope: topic, name: a/b/c, limits: {{publishRateInMsgs: {rate}}}}}\n"
REFUSED = "policies: the edit is refused, what was in force stays: "


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr(policy_watch, "LOOK_S", 0.0)
    monkeypatch.setattr(documents, "MOST_VALUES", FEW_VALUES)
    return Watched(tmp_path)


@pytest.mark.parametrize(("text", "message"), HOSTILE)
def test_a_hostile_document_is_refused_by_file_and_line(
    tmp_path: Path,
    watched: Watched,
    text: str | bytes,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = given(tmp_path / "weir.yaml", text)
    named = given(tmp_path / "names.yaml", f"warehouse: x\npolicy_files: ['{file}']\n")
    begun = time.monotonic()
    ways: list[Callable[[], object]] = [
        lambda: read_yaml(file, dict),
        lambda: load_settings(file),
        lambda: load_settings(named),
        lambda: documents_of(file),
        lambda: check([named]),
        lambda: rules_of(AlertSettings(rule_files=[str(file)])),
        lambda: owner_documents({"owner_files": ["weir.yaml"]}, tmp_path),
        lambda: play([file], as_json=False),
    ]
    for way in ways:
        with pytest.raises(UserError, match=message) as refused:
            way()
        assert str(refused.value).startswith(f"{file}: ")
        assert len(str(refused.value)) < 300 + len(str(file))
    assert LineNumbers(file).of(0) == {}
    assert validate(file, as_json=False) == 2
    assert capsys.readouterr().err.startswith(f"{file}: ")

    given(watched.limits, text)
    (said,) = watched.looked()
    assert said.startswith(f"{REFUSED}{watched.limits}: ") and "\n" not in said
    given(watched.limits, LIMITS.format(rate=22))
    given(watched.config, text)
    (said,) = watched.looked()
    assert said.startswith(f"{REFUSED}{watched.config}: ")
    assert watched.watch.now is watched.begun  # the last good ones
    given(watched.config, "policy_files: [limits.yaml]\n# mended\n")
    assert watched.looked() == ["policies: read again; the next batch judges by them"]
    assert time.monotonic() - begun < MOST_S


PATHS = [
    pytest.param(f"policy_files: [{LONG}]", "File name too long", id="a long file"),
    pytest.param(f"policy_files: ['{LONG}*']", "File name too long", id="a long pattern"),
    pytest.param(f"policies: [{LONG}]", "File name too long", id="a long file of policies"),
    pytest.param(f"shadows: {{a: [{LONG}]}}", "File name too long", id="a long file of a shadow"),
    pytest.param("policy_files: [none.yaml]", "No such file or directory", id="a file of nothing"),
    pytest.param("policy_files: [names.yaml/x]", "Not a directory", id="a file as a folder"),
    pytest.param("policy_files: [circle.yaml]", "Too many levels of", id="a circle of links"),
    pytest.param("policy_files: [pipe.yaml]", "is no file", id="a pipe"),
    pytest.param("policy_files: [folder]", "is no file", id="a folder in a folder"),
    pytest.param("policy_files: ['*']", "Too many levels of", id="everything"),
    pytest.param("policy_files: [/dev/zero]", "is no file", id="a device"),
    pytest.param("policy_files: [/dev/tty]", "is no file|cannot be read", id="a terminal"),
    pytest.param("policy_files: [/proc/self/mem]", "cannot be read", id="a file of the kernel"),
    pytest.param("policy_files: [large.yaml]", "has more than 8 MiB", id="a large file"),
    pytest.param("policy_files: [names.yaml]", "is not a list", id="itself"),
    pytest.param("policy_files: 1", "is not a list", id="a number of files"),
    pytest.param("policies: {a: 1}", "policies: .*is not a list", id="a mapping of policies"),
    pytest.param("shadows: [1]", "shadows: .*is not a mapping", id="a list of shadows"),
    pytest.param(f"policies: [{{scope: topic, name: {LONG}, limits: {{}}}}]", "1000", id="a name"),
    pytest.param(
        f"policies: [{{scope: topic, name: a/b/{'*' * 1100}, limits: {{}}}}]",
        "1000",
        id="a pattern",
    ),
]


@pytest.mark.parametrize(("text", "message"), PATHS)
def test_what_cannot_be_a_file_or_a_policy_is_refused(
    tmp_path: Path, watched: Watched, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder" / "inner.yaml").mkdir(parents=True)
    (tmp_path / "circle.yaml").symlink_to("circle.yaml")
    with (tmp_path / "large.yaml").open("wb") as large:
        large.truncate(100 * MOST_BYTES)
    file = given(tmp_path / "names.yaml", text)
    with pytest.raises(UserError, match=message):
        load_settings(file)
    try:
        assert check([file]) == 2
        assert message in capsys.readouterr().out
    except UserError as error:
        assert str(error).startswith(str(tmp_path)) or str(error).startswith("/")
    given(watched.config, text)
    (said,) = watched.looked()
    assert said.startswith(REFUSED) and "internal error" not in said
    assert watched.watch.now is watched.begun


@pytest.mark.parametrize(
    "alerts",
    [
        f"rule_files: [{LONG}]",
        "rule_files: [none.yaml]",
        "rule_files: [/dev/zero]",
        "rule_files: [.]",
    ],
)
def test_what_cannot_be_a_file_of_rules_is_refused(tmp_path: Path, alerts: str) -> None:
    file = given(
        tmp_path / "weir.yaml", f"source: {{format: files, path: in}}\nalerts: {{{alerts}}}\n"
    )
    assert validate(file, as_json=False) == 2


def test_other_files_of_a_configuration_are_read_the_same_way(tmp_path: Path) -> None:
    quotas = "source: {format: kafka_quotas, options: {kafka.bootstrap.servers: x}, quotas: {mapping: %s}}"
    for name in (LONG, "/dev/zero", str(tmp_path)):
        with pytest.raises(UserError, match=r"source\.quotas\.mapping"):
            load_settings(given(tmp_path / "weir.yaml", quotas % name))
    given(tmp_path / "owners.yaml", "- [")
    with pytest.raises(UserError, match=r"owners\.yaml: line 1: "):
        load_settings(given(tmp_path / "weir.yaml", "owner_files: [owners.yaml]"))


def test_options_of_commands_are_documents_too() -> None:
    with pytest.raises(UserError, match=r"--param a.b=\.\.\.: line 1: .* more than 50 deep"):
        value_of("[" * 1000, "--param a.b=...")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        load_settings(None, {"warehouse": "wh\udcff"})


def test_a_reason_that_no_table_holds_is_escaped(tmp_path: Path, watched: Watched) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    given(Path(os.fsdecode(os.fsencode(folder) + b"/\xff\n.yaml")), "[")
    given(watched.config, f"policy_files: ['{folder}']")
    (said,) = watched.looked()
    assert said.startswith(f"{REFUSED}{folder}/\\udcff")
    (refused,) = watched.watch.refused
    assert refused.reason.encode() and "\n" not in refused.reason


@pytest.mark.parametrize("unit", ["[],", "{a: x},"])
def test_the_largest_document_is_read_in_bounded_time(unit: str) -> None:
    begun = time.monotonic()
    with pytest.raises(UserError, match=f"has more than {MOST_VALUES:,} values"):
        value_of(f"[{unit * (MOST_BYTES // len(unit) - 1)}]", "weir.yaml")
    assert time.monotonic() - begun < MOST_S


def test_many_mistakes_are_told_in_bounded_time(tmp_path: Path, watched: Watched) -> None:
    for text in (
        f"policies: [{'[],' * 15_000}]",
        f"source: [{'{},' * 5_000}]",
        f"owners: [{'{},' * 5_000}]",
        "".join(f"k{i}: 1\n" for i in range(5_000)),
        f'? "{"a" * 1_000_000}"\n: 1\n',
        f'warehouse: ["{"a" * 1_000_000}"]\n',
    ):
        given(watched.config, text)
        (said,) = watched.looked()
        assert said.startswith(f"{REFUSED}{watched.config}: ") and len(said) < 700


def test_patterns_are_compared_in_bounded_time(tmp_path: Path) -> None:
    one = "{{scope: topic, name: 'acme/a/**{}{}', limits: {{publishRateInMsgs: {}}}}}"
    twins = [one.format("ab"[i % 2], "?" * (60 - i), i) for i in range(30)]
    file = given(tmp_path / "weir.yaml", f"policies: [{', '.join(twins)}]")
    with pytest.raises(UserError, match="are equally specific, match a name in common"):
        load_settings(file)
    long = [one.replace("**", "*").format(f"{'*?' * 200}/{i}/*?", "", i) for i in range(10, 99)]
    load_settings(given(file, f"policies: [{', '.join(long)}]"))
    many = [one.format(f"{i:04}*", "", 1) for i in range(2_000)]
    with pytest.raises(UserError, match="too many patterns are as specific as"):
        load_settings(given(file, f"policies: [{', '.join(many)}]"))


def test_a_file_that_is_replaced_while_it_is_read_has_the_lines_of_neither(tmp_path: Path) -> None:
    file = given(tmp_path / "p.yaml", LIMITS.format(rate=1) * 2 + "- {}\n")
    found = documents_of(file)
    given(file, "[]")
    (mistake, *_) = found.mistakes
    assert (mistake.line, mistake.one.where) == (None, f"{file}: [2]")


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "weir.yaml"
    with file.open("wb") as large:
        large.truncate(MOST_BYTES + 1)
    with pytest.raises(UserError, match="has more than 8 MiB"):
        text_of(file)
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path, why in (
        (pipe, "is no file"),
        (tmp_path, "is no file"),
        (tmp_path / "none", "cannot be"),
    ):
        with pytest.raises(UserError, match=why):
            text_of(path)


def test_aliases_and_merges_of_an_ordinary_size_are_read(tmp_path: Path) -> None:
    file = given(
        tmp_path / "weir.yaml",
        "\ufeffbase: &b {a: 1, c: [x]}\nfirst: {<<: *b, d: 2}\nsecond: *b\nat: 2026-01-05\n",
    )
    assert read_yaml(file, dict) == {
        "base": {"a": 1, "c": ["x"]},
        "first": {"a": 1, "c": ["x"], "d": 2},
        "second": {"a": 1, "c": ["x"]},
        "at": "2026-01-05",
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
        *words(
            "scope name limits publishRateInMsgs backlog_quota message_age limitTime policy"
            " resource_group producer_ids_rate managedLedgerCacheSizeMB"
        )
    ]
)
DOCUMENTS = st.recursive(
    st.one_of(VALUES, st.dictionaries(KEYS, VALUES, max_size=4)),
    lambda inner: st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=6,
)


@drawn_from(st.lists(DOCUMENTS, max_size=3))
@example([{"scope": "topic", "name": "acme/a/b", "limits": {"publishRateInMsgs": 1e308}}])
def test_any_value_in_a_policy_is_taken_or_refused(tmp_path_factory, documents: list[Any]):
    file = tmp_path_factory.mktemp("policies") / "p.yaml"
    file.write_text(yaml.safe_dump(documents), "utf-8")
    try:
        found = documents_of(file)
    except UserError:
        return
    json.dumps(found.kept, allow_nan=False, ensure_ascii=False).encode()
    assert len(found.every) + len({m.one.key for m in found.mistakes}) == len(documents)


@drawn_from(
    st.dictionaries(
        st.sampled_from(
            [
                *words(
                    "warehouse source policies policy_files shadows queries alerts owners"
                    " rate_limits backlog chunks metrics stats_window_ms allowed_lateness_ms"
                )
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
    assert_valid_or_refused(file)


def assert_valid_or_refused(file: Path) -> None:
    """What is valid can be written, and is the same configuration at the next start."""
    try:
        found = load_settings(file)
    except UserError as error:
        assert str(error).encode()
        return
    again = Settings.model_validate_json(found.model_dump_json())
    assert again.model_dump() == found.model_dump()


@drawn_from(st.one_of(st.text(max_size=60), st.binary(max_size=60)))
@example("policies: [{scope: client, name: '\\x1b', limits: {}}]")
@example('policies: [{scope: client, name: "\\e[2J\\u2028", limits: {}}]')
@example('policies: [{scope: client, name: "\\ud83d\\ude00", limits: {}}]')
def test_any_content_of_a_file_is_a_configuration_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, content: str | bytes
) -> None:
    data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    folder = tmp_path_factory.mktemp("any")
    assert_valid_or_refused(given(folder / "weir.yaml", data))
    given(folder / "policies.yaml", data)
    assert_valid_or_refused(given(folder / "weir.yaml", "policy_files: [policies.yaml]"))
