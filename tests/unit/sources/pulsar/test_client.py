"""The client against a server that answers badly: every wait ends, every error says what to do."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from app.address import parsed
from app.errors import UserError
from app.sources.polling import Unanswered
from app.sources.pulsar import admin_client as module
from app.sources.pulsar.admin_client import AdminClient, NotAllowed, NotThere, topic_path
from tests.support.servers.admin import (
    AdminServer,
    break_off,
    break_off_chunked,
    chunked,
    hang,
    in_turn,
    status,
    trickle,
    trickle_headers,
)
from tests.support.servers.tls import self_signed
from tests.unit.sources.pulsar.conftest import MakeAdmin

PATH = "clusters"


def get(settings: Any, path: str = PATH) -> Any:
    return AdminClient(settings).session().get(path)


def test_json_and_nothing(server: AdminServer, make_admin: MakeAdmin) -> None:
    server.answers.update({PATH: ["a"], "empty": status(204), "blank": "", "parts": chunked})
    session = AdminClient(make_admin()).session()
    assert [session.get(path) for path in (PATH, "empty", PATH, "blank", "parts", PATH)] == [
        ["a"],
        None,
        ["a"],
        None,
        [1, 2],
        ["a"],
    ]
    assert len(set(server.clients)) == 1


def test_names_are_quoted(server: AdminServer, make_admin: MakeAdmin) -> None:
    path = topic_path("persistent://t/n/a b/c?d%#é")
    assert path == "persistent/t/n/a%20b%2Fc%3Fd%25%23%C3%A9"
    server.answers["persistent/t/n/a b/c?d%#é"] = 1
    assert get(make_admin(), path) == 1


@pytest.mark.parametrize("answer", [hang, trickle, trickle_headers])
def test_a_slow_answer_ends_in_time(
    server: AdminServer, make_admin: MakeAdmin, answer: Any
) -> None:
    server.answers[PATH] = answer
    begun = time.monotonic()
    with pytest.raises(Unanswered, match="no whole answer in time"):
        get(make_admin(timeout_ms=200))
    assert 0.4 <= time.monotonic() - begun < 2
    assert server.asked == [PATH, PATH]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (break_off, "breaks off"),
        (break_off_chunked, "breaks off"),
        ('{"a": [1, 2', "is not JSON"),
        ("<html>", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        (status(500, {"reason": "it broke"}), r"status 500 \(it broke\)"),
        (status(503), "status 503"),
        (status(429), "status 429"),
        (status(404, "<html>nginx"), "status 404"),
        (status(404), "status 404"),
        (status(405, {"reason": "HTTP 405 Method Not Allowed"}), "status 405"),
        (status(302), "status 302"),
    ],
)
def test_what_is_no_answer_is_asked_again(
    server: AdminServer, make_admin: MakeAdmin, answer: Any, said: str
) -> None:
    server.answers[PATH] = answer
    with pytest.raises(Unanswered, match=f"^{PATH}: .*{said}"):
        get(make_admin(retries=2))
    assert len(server.asked) == 3
    server.answers[PATH] = in_turn(answer if callable(answer) else status(200, answer), {"a": 1})
    assert get(make_admin()) == {"a": 1}


def test_pauses_double_up_to_a_limit(
    server: AdminServer, make_admin: MakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers[PATH] = status(500)
    client = AdminClient(make_admin(retries=5))
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.2)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 1.0)
    pauses: list[float] = []
    monkeypatch.setattr(client.stopping, "wait", pauses.append)
    with pytest.raises(Unanswered):
        client.session().get(PATH)
    assert pauses == [0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_stop_ends_the_attempts(server: AdminServer, make_admin: MakeAdmin) -> None:
    server.answers[PATH] = status(500)
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(Unanswered, match="stopping"):
        AdminClient(make_admin(), stopping).session().get(PATH)
    assert server.asked == []


def test_nothing_is_asked_after_the_deadline(server: AdminServer, make_admin: MakeAdmin) -> None:
    with pytest.raises(Unanswered, match="no time left"):
        AdminClient(make_admin()).session(time.monotonic() - 1).get(PATH)
    assert server.asked == []


def test_pulsar_itself_says_what_is_not_there(server: AdminServer, make_admin: MakeAdmin) -> None:
    with pytest.raises(NotThere, match="nothing not found"):
        get(make_admin(), "nothing")
    assert len(server.asked) == 1


def test_tokens(
    server: AdminServer, make_admin: MakeAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers[PATH] = []
    get(make_admin())
    assert "Authorization" not in server.headers[-1]
    monkeypatch.setenv("WEIR_TEST_TOKEN", "abc.def")
    get(make_admin(token="${env:WEIR_TEST_TOKEN}"))
    assert server.headers[-1]["Authorization"] == "Bearer abc.def"
    file = tmp_path / "token"
    file.write_text("first\n")
    client = AdminClient(make_admin(token_file=str(file)))
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        client.session().get(PATH)
        assert server.headers[-1]["Authorization"] == f"Bearer {token}"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"token": "${env:WEIR_NO_SUCH}"}, "source.admin.token: the environment variable"),
        ({"token_file": "/no/such/file"}, "source.admin.token_file: /no/such/file: cannot be read"),
        ({"token": "two\nlines"}, "source.admin.token: is not a token"),
        ({"token": ""}, "source.admin.token: is not a token"),
        ({"token": "Bearer two"}, "source.admin.token: is not a token"),
        ({"token": "two three"}, "source.admin.token: is not a token"),
        (
            {"ca_file": "/no/such/file", "url": "https://localhost:1"},
            "source.admin.ca_file: /no/such",
        ),
        ({"url": []}, "source.admin.url: is missing"),
    ],
)
def test_settings_that_do_not_work(make_admin: MakeAdmin, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        get(make_admin(**keys))
    assert "two" not in str(error.value)


@pytest.mark.parametrize(
    ("code", "keys", "said"),
    [
        (401, {}, r"source\.admin\.token: .*401.*\ngive a token"),
        (
            401,
            {"token": "x"},
            r"source\.admin\.token: .*401: no.*\nthe token is wrong or has expired",
        ),
        (403, {"token": "x"}, r"source\.admin\.token: .*403.*\n.*source\.admin\.policies"),
    ],
)
def test_a_refusal_names_the_setting(
    server: AdminServer, make_admin: MakeAdmin, code: int, keys: dict[str, Any], said: str
) -> None:
    server.answers[PATH] = status(code, {"reason": "no"})
    with pytest.raises(UserError, match=said) as error:
        get(make_admin(**keys))
    assert isinstance(error.value, NotAllowed) == (code == 403)
    assert len(server.asked) == 1


def test_the_owner_of_a_topic_is_followed(server: AdminServer, make_admin: MakeAdmin) -> None:
    with AdminServer() as owner:
        owner.answers.update({"a": 1, "b": 2})
        server.answers["a"] = status(307, Location=f"{owner.url}/admin/v2/a?x=1")
        server.answers["brokers"] = [owner.url.partition("://")[2]]
        session = AdminClient(make_admin(token="t")).session()
        assert session.get("a?x=1") == 1
        assert session.get("b") == 2
        assert (server.asked, owner.asked) == (["a", "brokers"], ["a", "b"])
        assert owner.headers[0]["Authorization"] == "Bearer t"


@pytest.mark.parametrize(
    ("listed", "followed"),
    [
        (["{other}", "pulsar-2:8080"], True),
        ([None, 1, "[::1", "a\\b", "{other}"], True),
        (["LOCALHOST:{port}"], True),
        (["pulsar-2:8080"], False),
        (["localhost:8080"], False),
        (["localhost"], False),
        (["127.0.0.1:{port}"], False),
        (["{other}@pulsar-2:8080"], False),
        ([], False),
        ({"{other}": 1}, False),
        ("{other}", False),
        (status(403, {"reason": "no"}), False),
        (hang, False),
        (status(307, Location="http://localhost:1/"), False),
    ],
)
def test_a_token_goes_only_to_brokers(
    server: AdminServer, make_admin: MakeAdmin, listed: Any, followed: bool
) -> None:
    with AdminServer() as other:
        other.answers["a"] = 1
        elsewhere = other.url.replace("127.0.0.1", "localhost")
        if not callable(listed):
            port = elsewhere.rpartition(":")[2]
            text = json.dumps(listed).replace("{other}", f"localhost:{port}")
            listed = json.loads(text.replace("{port}", port))
        server.answers.update(
            {"a": status(307, Location=f"{elsewhere}/admin/v2/a"), "brokers": listed}
        )
        session = AdminClient(make_admin(token="t", retries=0, timeout_ms=1000)).session()
        if followed:
            assert [session.get("a"), session.get("a")] == [1, 1]
        else:
            for _ in range(2):
                with pytest.raises(Unanswered, match="nor in the cluster's list of brokers"):
                    session.get("a")
            assert other.asked == []
        assert server.asked.count("brokers") == 1, "the list is used again"


@pytest.mark.parametrize(
    "location",
    [
        "{other}/admin/v2/a",
        "{OTHER}/admin/v2/a",
        "{other}\\\\@{own}/",
        "{other}\\@{own}/",
        "http:\\\\{host}/",
        "http://{ownhost}@{host}/",
        "http://{host}#@{ownhost}/",
        "http://{host}?@{ownhost}/",
        "//{host}/a",
        "\\\\{host}/a",
        "http://local\thost:{port}/a",
        "http://loc%61lhost:{port}/a",
        "http://localhost.:{port}/a",
        "http://[::ffff:127.0.0.1]:{port}/a",
        "http://[::1%25lo]:{port}/a",
        "http://2130706433:{port}/a",
        "http://0x7f.1:{port}/a",
        "http://127.1:{port}/a",
        "http://127.0.0.1:{port}/a",
        "http://127.0.0.1:0{port}/a",
        "http://127.0.0.1:{port}@/a",
        " {other}/a",
        "{other}/a, {own}/a",
    ],
)
def test_no_spelling_of_an_address_takes_the_token_elsewhere(
    server: AdminServer, make_admin: MakeAdmin, location: str
) -> None:
    """The other server has the configured host, whose other ports are somebody else's."""
    with AdminServer() as other:
        host = other.url.replace("127.0.0.1", "localhost").partition("://")[2]
        names = {
            "other": f"http://{host}",
            "OTHER": f"HTTP://{host.upper()}",
            "own": server.url,
            "host": host,
            "ownhost": server.url.partition("://")[2],
            "port": host.rpartition(":")[2],
        }
        server.answers["a"] = status(307, Location=location.format(**names))
        server.answers["brokers"] = [server.url.partition("://")[2], "localhost:1"]
        client = AdminClient(make_admin(token="t", retries=0))
        with pytest.raises(Unanswered, match=r"^a: redirected "):
            client.session().get("a")
        assert other.asked == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (status(404, {"reason": "Topic not found"}), "Topic not found"),
        (
            status(405, {"reason": "Topic level policies is disabled, to enable the topic level"}),
            "Topic level policies is disabled",
        ),
        (status(500, {"reason": "No such entry"}), "No such entry"),
    ],
)
def test_what_does_not_exist_is_an_answer(
    server: AdminServer, make_admin: MakeAdmin, answer: Any, reason: str
) -> None:
    server.answers[PATH] = answer
    with pytest.raises(NotThere, match=reason):
        get(make_admin(retries=3))
    assert server.asked == [PATH]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("no-such-host.invalid:8080", r"cannot be reached \(.*(name|Name|resolution)"),
        ("localhost:{free}", r"cannot be reached \(Connection refused\)"),
    ],
)
def test_where_a_redirect_led_is_said(
    server: AdminServer, make_admin: MakeAdmin, place: str, said: str
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        place = place.format(free=bound.getsockname()[1])
        server.answers["brokers"] = [place]
        server.answers["a"] = status(307, Location=f"http://{place}/admin/v2/a")
        with pytest.raises(Unanswered, match=f"^a: redirected to http://{place}, {said}"):
            AdminClient(make_admin(retries=0)).session().get("a")


def test_a_broker_that_was_only_listed_lists_nobody(
    server: AdminServer, make_admin: MakeAdmin
) -> None:
    with AdminServer() as listed, AdminServer() as third:
        server.answers["brokers"] = [listed.url.partition("://")[2]]
        server.answers["a"] = status(307, Location=f"{listed.url}/admin/v2/a")
        listed.answers["brokers"] = [third.url.partition("://")[2]]
        listed.answers["a"] = 1
        client = AdminClient(make_admin(token="t", retries=0))
        session = client.session()
        assert session.get("a") == 1
        listed.answers["a"] = status(307, Location=f"{third.url}/admin/v2/a")
        with pytest.raises(Unanswered, match="nor in the cluster's list of brokers"):
            session.get("a")
        assert (listed.asked, third.asked) == (["a", "a"], [])


def test_a_broker_that_is_no_longer_listed_is_asked_no_more(
    server: AdminServer, make_admin: MakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    with AdminServer() as listed:
        server.answers["brokers"] = in_turn([listed.url.partition("://")[2]], [])
        server.answers["a"] = status(307, Location=f"{listed.url}/admin/v2/a")
        server.answers["b"] = 2
        listed.answers["a"] = 1
        session = AdminClient(make_admin(token="t", retries=0)).session()
        assert session.get("a") == 1
        monkeypatch.setattr(module, "LIST_S", -1.0)
        assert session.get("b") == 2
        assert listed.asked == ["a"]


def test_no_proxy_of_the_environment_has_the_token(
    server: AdminServer, make_admin: MakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    with AdminServer() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        server.answers[PATH] = []
        assert get(make_admin(token="t")) == []
        assert proxy.asked == []


def test_control_characters_of_a_redirect_are_not_printed(
    server: AdminServer, make_admin: MakeAdmin
) -> None:
    server.answers[PATH] = status(307, Location="http://evil.example/\x1b[2J")
    with pytest.raises(Unanswered) as error:
        get(make_admin(retries=0))
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("/admin/v2/clusters", "more than 5 times"),
        ("file:///etc/passwd", "not an HTTP address"),
        ("http://127.0.0.1:1/", "nor in the cluster's list of"),
        ("http://[::1", "not an HTTP address"),
    ],
)
def test_redirects_that_lead_nowhere(
    server: AdminServer, make_admin: MakeAdmin, location: str, said: str
) -> None:
    server.answers[PATH] = status(307, Location=location)
    with pytest.raises(Unanswered, match=said):
        get(make_admin(retries=0))


def test_another_address_is_tried(server: AdminServer, make_admin: MakeAdmin) -> None:
    server.answers[PATH] = ["a"]
    settings = make_admin(url=["http://127.0.0.1:1", server.url])
    client = AdminClient(settings)
    for _ in range(2):
        assert client.session().get(PATH) == ["a"]
    assert client.preferred == 1
    with pytest.raises(Unanswered, match="Connection refused"):
        get(make_admin(url="http://127.0.0.1:1"))


def test_an_endless_answer_is_cut(
    server: AdminServer, make_admin: MakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    server.answers[PATH] = " " * (2 << 20)
    with pytest.raises(Unanswered, match="more than 1 MiB"):
        get(make_admin())


@pytest.mark.parametrize("body", ["[" + "[]," * 5_000_000 + "[]]", "[" + "0," * 5_000_001 + "0]"])
def test_a_small_answer_of_many_elements_is_refused(
    server: AdminServer, make_admin: MakeAdmin, body: str
) -> None:
    """Each element would take a hundred times its bytes, and as long to collect."""
    server.answers[PATH] = status(200, body)
    with pytest.raises(Unanswered, match="more than 5,000,000 elements"):
        get(make_admin(retries=0))


def test_connections_are_used_again_and_opened_again(
    server: AdminServer, make_admin: MakeAdmin
) -> None:
    server.answers[PATH] = []
    server.answers["old"] = lambda h: h.send(200, [1], Connection="close")
    client = AdminClient(make_admin(retries=0))
    assert [client.session().get(path) for path in (PATH, PATH, "old", PATH)] == [[], [], [1], []]
    first, second, old, after = server.clients
    assert first == second == old != after


def test_a_server_proves_who_it_is_and_sends_nobody_out_of_tls(
    server: AdminServer, make_admin: MakeAdmin, tmp_path: Path
) -> None:
    certificate, context = self_signed(tmp_path)
    with AdminServer(context) as tls:
        tls.answers.update(
            {
                PATH: ["a"],
                "out": status(307, Location=f"{server.url}/admin/v2/out"),
                "slow": trickle,
            }
        )
        with pytest.raises(Unanswered, match="CERTIFICATE_VERIFY_FAILED"):
            get(make_admin(url=tls.url, timeout_ms=5000))
        trusting = make_admin(url=tls.url, ca_file=str(certificate), token="t", retries=0)
        assert get(trusting) == ["a"]
        with pytest.raises(Unanswered, match="no whole answer in time"):
            get(trusting, "slow")
        with pytest.raises(Unanswered, match=f"redirected to {server.url}.*, without TLS"):
            get(trusting, "out")
        assert server.asked == []
        server.answers["in"] = status(307, Location=f"{tls.url}/admin/v2/{PATH}")
        server.answers["brokers"] = [tls.url.partition("://")[2]]
        assert get(make_admin(ca_file=str(certificate)), "in") == ["a"]


@pytest.mark.parametrize(
    ("url", "trusted"),
    [
        ("https://b1:8443", True),
        ("http://b2:8080", True),
        ("https://b2:8443", True),
        ("https://b2:8444", False),
        ("http://b2:8443", False),
        ("http://b1:8443", False),
        ("https://b3:8443", False),
    ],
)
def test_a_listed_host_may_have_the_configured_port_of_tls(
    server: AdminServer, make_admin: MakeAdmin, url: str, trusted: bool
) -> None:
    """A broker with both ports lists the one without TLS."""
    server.answers["brokers"] = ["b2:8080"]
    client = AdminClient(make_admin(url=[server.url, "https://b1:8443"], token="t"))
    assert client.trusts(parsed(url).origin) == trusted
