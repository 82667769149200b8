"""The command `policy` over the documents of docs/policies.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.cli import main
from app.config.settings import load_settings
from tests.support.throttle_rows import write

PAGE = Path(__file__).resolve().parents[4] / "docs" / "policies.md"
FILE = re.search(r"```yaml\n(# configs/policies/shop\.yaml\n.*?)```", PAGE.read_text("utf-8"), re.S)
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the page in a folder of policies, and a configuration that names the folder."""
    monkeypatch.chdir(tmp_path)
    policies = tmp_path / "configs" / "policies"
    policies.mkdir(parents=True)
    assert FILE is not None
    (policies / "shop.yaml").write_text(FILE[1], encoding="utf-8")
    (tmp_path / "weir.yaml").write_text(
        "warehouse: w\nsource: {format: files, path: in}\npolicies: configs/policies\n",
        encoding="utf-8",
    )
    return policies


def answered(capsys: Capture, code: int, *words: str) -> str:
    assert main(["policy", *words]) == code
    return capsys.readouterr().out


def test_the_page_shows_what_show_prints(folder: Path, capsys: Capture) -> None:
    text = answered(capsys, 0, "show", "shop/orders/paid", "--config", "weir.yaml")
    shown = re.search(r"```text\n(topic persistent.*?)```", PAGE.read_text("utf-8"), re.S)
    assert shown is not None and text == shown[1]


@pytest.mark.parametrize(
    ("topic", "msgs", "size"),
    [
        ("shop/orders/new", (50, "topic shop/orders/**"), (-1, "topic shop/orders/**")),
        ("shop/orders/new-partition-3", (50, "topic shop/orders/**"), (-1, "topic shop/orders/**")),
        ("shop/other/x", (900, "tenant shop"), (100000, "namespace shop/*")),
    ],
)
def test_a_limit_comes_from_the_strongest_document(
    folder: Path, capsys: Capture, topic: str, msgs: object, size: object
) -> None:
    text = answered(capsys, 0, "show", topic, "--config", "weir.yaml", "--json")
    (answer,) = json.loads(text)
    found = {one["limit"]: (one["value"], one["document"]) for one in answer["limits"]}
    assert found == {
        "publishRateInMsgs": msgs,
        "publishRateInBytes": size,
        "resource_group": ("shop", "tenant shop"),
    }


def test_what_the_stream_said_last_stands_above_patterns(folder: Path, capsys: Capture) -> None:
    def said(at_ms: int, msgs: int) -> dict[str, object]:
        document = {
            "scope": "topic",
            "name": "shop/orders/new",
            "limits": {"publishRateInMsgs": msgs},
        }
        return {
            "event_type": "policy",
            "cluster": "east",
            "ts_wall_ms": at_ms,
            "seq": 1,
            "policy_json": json.dumps(document),
            "source_partition": "p",
            "source_offset": 7,
        }

    write("w", "events", [said(1000, 3), said(2000, 4)])
    for at, value in ((["--at", "1500"], 3), ([], 4)):
        words = "show", "shop/orders/new", "--config", "weir.yaml", *at, "--json"
        text = answered(capsys, 0, *words)
        (answer,) = json.loads(text)
        first = answer["limits"][0]
        assert (answer["cluster"], first["limit"], first["value"], first["document"]) == (
            "east",
            "publishRateInMsgs",
            value,
            "topic shop/orders/new",
        )
        assert first["where"].startswith("stream at 1970-01-01T00:00:0")
        assert [one["value"] for one in first["overrides"]] == [50, 900]


def test_a_user_has_the_limit_of_its_pattern_over_the_default(
    folder: Path, capsys: Capture
) -> None:
    (folder / "users.yaml").write_text(
        "- {scope: user, name: <default>, limits: {producer_ids_rate: 7}}\n"
        "- {scope: user, name: etl-*, limits: {producer_ids_rate: 5}}\n",
        encoding="utf-8",
    )
    for user, value in (("User:etl-1", 5), ("bob", 7)):
        (answer,) = json.loads(answered(capsys, 0, "show", user, "--config", "weir.yaml", "--json"))
        assert answer["kind"] == "principal"
        assert [(one["limit"], one["value"]) for one in answer["limits"]] == [
            ("producer_ids_rate", value)
        ]


def test_a_user_has_the_client_quotas_of_its_own_and_of_its_clients(
    folder: Path, capsys: Capture
) -> None:
    (folder / "users.yaml").write_text(
        "- {scope: user, name: <default>, limits: {producer_byte_rate: 5}}\n"
        "- {scope: user, name: alice, limits: {producer_byte_rate: 7}}\n"
        "- {scope: user, name: alice, client_id: app, limits: {request_percentage: 9}}\n"
        "- {scope: user, name: bob, client_id: app, limits: {request_percentage: 1}}\n",
        encoding="utf-8",
    )
    shown = answered(capsys, 0, "show", "User:alice", "--config", "weir.yaml", "--json")
    (answer,) = json.loads(shown)
    assert [(one["limit"], one["value"], one["document"]) for one in answer["limits"]] == [
        ("producer_byte_rate", 7, "user alice"),
        ("request_percentage with client app", 9, "user alice client app"),
    ]
    assert [one["value"] for one in answer["limits"][0]["overrides"]] == [5]


def test_a_client_id_has_its_quotas_over_the_default_and_those_with_users(
    folder: Path, capsys: Capture
) -> None:
    (folder / "clients.yaml").write_text(
        "- {scope: client, name: <default>, limits: {producer_byte_rate: 5}}\n"
        "- {scope: client, name: app, limits: {producer_byte_rate: 7}}\n"
        "- {scope: client, name: alice, limits: {producer_byte_rate: 8}}\n"
        "- {scope: user, name: alice, limits: {consumer_byte_rate: 3}}\n"
        "- {scope: user, name: alice, client_id: app, limits: {request_percentage: 9}}\n"
        "- {scope: user, name: bob, client_id: web, limits: {request_percentage: 1}}\n",
        encoding="utf-8",
    )
    (answer,) = json.loads(answered(capsys, 0, "show", "app", "--config", "weir.yaml", "--json"))
    assert answer["kind"] == "client"
    assert [(one["limit"], one["value"], one["document"]) for one in answer["limits"]] == [
        ("producer_byte_rate", 7, "client app"),
        ("request_percentage with user alice", 9, "user alice client app"),
    ]
    assert [one["value"] for one in answer["limits"][0]["overrides"]] == [5]
    assert answered(capsys, 0, "show", "alice", "--config", "weir.yaml").startswith("principal")


def test_a_warehouse_stands_for_the_limits_in_force_of_a_cluster(
    tmp_path: Path, capsys: Capture
) -> None:
    """The latest document of each name; without limits that were removed, and without keys that files
    may not have. Names of the stream are no patterns."""
    limits = (
        ("east", "a*", {"producer_byte_rate": 1}),
        ("east", "a*", {"producer_byte_rate": 7, "new_rate": 3}),
        ("east", "gone", {"producer_byte_rate": 2}),
        ("east", "gone", {}),
        ("west", "a*", {"producer_byte_rate": 9}),
    )
    rows = [
        {
            "event_type": "policy",
            "cluster": cluster,
            "ts_wall_ms": at_ms,
            "policy_json": json.dumps(
                {"scope": "user", "name": name, "limits": found, "quota_kinds": "in_force"}
            ),
            "source_partition": "p",
            "source_offset": at_ms,
        }
        for at_ms, (cluster, name, found) in enumerate(limits)
    ]
    warehouse, wanted = str(tmp_path / "w"), tmp_path / "wanted.yaml"
    write(warehouse, "events", rows)
    wanted.write_text(
        "- {scope: user, name: 'a[*]', limits: {producer_byte_rate: 7}}\n"
        "- {scope: user, name: b, limits: {producer_byte_rate: 5}}\n",
        encoding="utf-8",
    )
    of_east = ("--cluster", "east")
    assert answered(capsys, 0, "diff", warehouse, str(wanted), *of_east) == (
        f"user b: producer_byte_rate is set to 5  ({wanted}:2)\n"
    )
    (change,) = json.loads(
        answered(capsys, 0, "diff", str(wanted), warehouse, "--cluster", "west", "--json")
    )[:1]
    assert (change["change"], change["before"], change["after"]) == ("raised", 7, 9)
    assert change["where"].startswith(f"{warehouse}: stream at 1970-01-01T00:00:00.004Z")
    exported = answered(capsys, 0, "export", warehouse, "--format", "kafka-configs", *of_east)
    assert exported.endswith("--entity-name='a*' --add-config producer_byte_rate=7\n")
    wanted.write_text(
        "- {scope: user, name: 'a[*]', limits: {consumer_byte_rate: 3}}\n", encoding="utf-8"
    )
    words = "policy", "diff", warehouse, str(wanted), *of_east
    assert main([*words]) == 0
    out, err = capsys.readouterr()
    assert out == f"user a[*]: consumer_byte_rate is set to 3  ({wanted}:1)\n"
    assert err == (
        f"1 limit in force that {wanted} does not name, kept: user a[*] producer_byte_rate\n"
    )
    wanted.write_text("- {scope: user, name: 'a[*]', limits: {}}\n", encoding="utf-8")
    assert "a[*]: producer_byte_rate is removed (was 7)" in answered(capsys, 0, *words[1:])
    assert main(["policy", "diff", warehouse, str(wanted)]) == 2
    assert "has the limits of several clusters\n--cluster: east, west" in capsys.readouterr().err


def test_documents_without_mistakes_and_findings_are_fine(folder: Path, capsys: Capture) -> None:
    assert answered(capsys, 0, "check", "configs/policies") == (
        "4 documents, 0 mistakes, 0 findings\n"
    )
    assert answered(capsys, 0, "check", "weir.yaml") == ("4 documents, 0 mistakes, 0 findings\n")


def test_every_mistake_is_printed_with_file_line_and_key(folder: Path, capsys: Capture) -> None:
    (folder / "wrong.yaml").write_text(
        "- scope: topic\n"
        "  name: shop/*\n"
        "  limits: {publishRateInMsgs: 1}\n"
        "- scope: namespace\n"
        "  name: shop/orders\n"
        "  limits:\n"
        "    publishRateInMsg: 1\n"
        "- scope: tenant\n"
        "  name: a/b\n"
        "  limits: {}\n"
        "- scope: namespace\n"
        "  name: '*/shop'\n"
        "  limits: {publishRateInBytes: 7}\n",
        encoding="utf-8",
    )
    lines = answered(capsys, 2, "check", "configs/policies").splitlines()
    assert lines[:-2] == [
        "configs/policies/wrong.yaml:2: [0].name: 'shop/*' matches no topic"
        " ([scheme://]tenant/namespace/name, such as acme/*/orders)",
        "configs/policies/wrong.yaml:7: [1].limits.publishRateInMsg: no limit of scope namespace"
        " (did you mean publishRateInMsgs?)",
        "configs/policies/wrong.yaml:9: [2].name: 'a/b' is not a tenant, nor a pattern of tenants",
    ]
    assert lines[-2] == (
        "configs/policies/wrong.yaml:12: [3].name: '*/shop' and 'shop/*'"
        " (configs/policies/shop.yaml:5) are equally specific, match a name in common and differ in"
        " publishRateInBytes; make one of them more specific"
    )
    assert main(["validate", "--config", "weir.yaml"]) == 2  # and a run does not begin


def test_the_shadows_of_a_configuration_are_checked(folder: Path, capsys: Capture) -> None:
    Path("next.yaml").write_text("- {scope: topic, name: a/b/c, limits: {publishRateInMsgs: 1}}\n")
    text = Path("weir.yaml").read_text(encoding="utf-8")
    Path("weir.yaml").write_text(
        text + "shadows:\n  next: next.yaml\n  inline:\n  - {scope: tenant, name: a,"
        " limits: {publishRateInMsgs: -2}}\n",
        encoding="utf-8",
    )
    assert answered(capsys, 2, "check", "weir.yaml").splitlines() == [
        "weir.yaml:7: shadows.inline[0].limits.publishRateInMsgs: -2 is below -1 (-1 and 0 are"
        " off)",
        "5 documents, 1 mistake, 0 findings",
    ]
    Path("weir.yaml").write_text(text + "shadows: {next: next.yaml}\n", encoding="utf-8")
    assert answered(capsys, 0, "check", "weir.yaml") == "5 documents, 0 mistakes, 0 findings\n"


@pytest.mark.parametrize(
    ("more", "finding"),
    [
        (
            "- {scope: topic, name: '**', limits: {publishRateInMsgs: 1}}\n",
            "configs/policies/shop.yaml:4: [0].limits.publishRateInMsgs: never holds: topic **"
            " (configs/policies/z.yaml:1) overrides it for every name",
        ),
        (
            "- {scope: topic, name: shop/orders/paid, limits: {publishRateInMsgs: 1}}\n",
            "configs/policies/shop.yaml:12: [3].name: topic shop/orders/paid is replaced by the later"
            " document in configs/policies/z.yaml:1",
        ),
        (
            "- {scope: broker, name: '*', limits: {connectionsPerBroker: 1}}\n",
            "configs/policies/z.yaml:1: [0].limits.connectionsPerBroker: has no effect on any decision",
        ),
        (
            "- {scope: namespace, name: shop/**, limits: {publishRateInMsgs: 1}}\n",
            "configs/policies/shop.yaml:4: [0].limits.publishRateInMsgs: never holds: namespace shop/**"
            " (configs/policies/z.yaml:1) overrides it for every name",
        ),
    ],
)
def test_what_has_no_effect_is_a_finding(
    folder: Path, capsys: Capture, more: str, finding: str
) -> None:
    (folder / "z.yaml").write_text(more, encoding="utf-8")
    assert finding in answered(capsys, 1, "check", "configs/policies").splitlines()


def test_two_sets_are_compared_in_words(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(
        "- {scope: tenant, name: shop, limits: {publishRateInMsgs: 800, resource_group: big}}\n"
        "- {scope: namespace, name: shop/*, limits: {publishRateInBytes: 0}}\n"
        "- {scope: topic, name: shop/orders/paid, limits: {publishRateInMsgs: 300}}\n"
        "- {scope: user, name: a*, limits: {producer_ids_rate: 2}}\n",
        encoding="utf-8",
    )
    assert answered(capsys, 0, "diff", "configs/policies", "other.yaml").splitlines() == [
        "tenant shop: publishRateInMsgs is lowered from 900 to 800  (other.yaml:1)",
        "tenant shop: resource_group is changed from shop to big  (other.yaml:1)",
        "namespace shop/*: publishRateInBytes is raised from 100000 to 0  (other.yaml:2)",
        "topic shop/orders/**: publishRateInMsgs is removed (was 50)"
        "  (configs/policies/shop.yaml:10)",
        "topic shop/orders/paid: publishRateInMsgs is raised from 200 to 300  (other.yaml:3)",
        "user a*: producer_ids_rate is set to 2  (other.yaml:4)",
    ]
    changes = json.loads(answered(capsys, 0, "diff", "weir.yaml", "other.yaml", "--json"))
    assert [one["change"] for one in changes] == [
        "lowered",
        "changed",
        "raised",
        "removed",
        "raised",
        "set",
    ]
    assert answered(capsys, 0, "diff", "configs/policies", "weir.yaml") == "no limit differs\n"


def test_files_that_are_not_there_are_named(folder: Path, capsys: Capture) -> None:
    assert main(["policy", "check", "none.yaml"]) == 2
    assert capsys.readouterr().err == (
        "weir: none.yaml: cannot be read (No such file or directory)\n"
    )
    assert main(["policy", "check"]) == 2
    assert "Missing argument 'files'" in capsys.readouterr().err


def test_paths_are_files_folders_and_patterns(folder: Path, tmp_path: Path) -> None:
    every = load_settings(tmp_path / "weir.yaml").policy_dicts()
    for text in (
        "policies: [configs/policies/shop.yaml]",
        "policies: configs/*/s*.yaml",
        "policy_files: [configs/policies]",
        "policies: []\npolicy_files: [configs/*/*]",
    ):
        (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
        assert load_settings(tmp_path / "c.yaml").policy_dicts() == every


def test_a_document_of_a_name_has_what_its_patterns_say(folder: Path, tmp_path: Path) -> None:
    (folder / "exact.yaml").write_text(
        "- {scope: namespace, name: shop/orders, limits: {publishRateInMsgs: 1}}\n"
        "- {scope: topic, name: 'kafka[*]topic/a/b', limits: {publishRateInMsgs: 1}}\n",
        encoding="utf-8",
    )
    found = {
        (p["scope"], p["name"]): p["limits"]
        for p in load_settings(tmp_path / "weir.yaml").policy_dicts()
    }
    assert found == {
        ("tenants", "shop"): {"publishRateInMsgs": 900, "resource_group": "shop"},
        ("namespaces", "shop/*"): {"publishRateInBytes": 100000},
        ("topics", "persistent://shop/orders/**"): {"publishRateInMsgs": 50},
        ("topic", "shop/orders/paid"): {"publishRateInMsgs": 200},
        ("namespace", "shop/orders"): {
            "publishRateInMsgs": 1,
            "publishRateInBytes": 100000,
            "resource_group": "shop",
        },
        ("topic", "kafka*topic/a/b"): {"publishRateInMsgs": 1},
    }
