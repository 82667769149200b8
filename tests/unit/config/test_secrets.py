"""Passwords in a configuration, wherever it takes one: never printed, never kept."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from app.cli import main
from app.config.described import described
from app.config.settings import Settings, load_settings
from app.errors import UserError
from app.terminal.secrets import SECRET, masked, without_secrets

HUSH = "hush"
URL = f"http://me:{HUSH}@host:8080"
KAFKA = {"kafka.bootstrap.servers": "h:1"}
JAAS = f'x username="me" password="{HUSH}";'
CONFIGS = {
    "webhook": {"alerts": {"sinks": [{"type": "webhook", "url": f"{URL}"}]}},
    "webhook with a path": {"alerts": {"sinks": [{"type": "webhook", "url": f"{URL}/{HUSH}"}]}},
    "webhook with a token as user": {
        "alerts": {"sinks": [{"type": "webhook", "url": f"https://{HUSH}@host"}]}
    },
    "webhook beside a variable": {
        "alerts": {"sinks": [{"type": "webhook", "url": f"https://me:{HUSH}@host/${{env:PATH}}"}]}
    },
    "alertmanager": {"alerts": {"sinks": [{"type": "alertmanager", "url": f"{URL}/?a={HUSH}"}]}},
    "header": {
        "alerts": {
            "sinks": [
                {
                    "type": "webhook",
                    "url": "http://host",
                    "headers": {
                        "Authorization": f"Basic {HUSH}",
                        "X-Api-Key": f"${{env:PATH}}{HUSH}",
                    },
                }
            ]
        }
    },
    "endpoint of an object store": {"storage_options": {"AWS_ENDPOINT_URL": URL}},
    "warehouse": {"warehouse": f"s3://me:{HUSH}@bucket/warehouse"},
    "token in the address of an exporter": {
        "source": {
            "format": "kafka_quotas",
            "options": KAFKA,
            "quotas": {
                "exporters": {"1": f"http://h:1/metrics?token={HUSH}", "2": f"{URL}?a={HUSH}"}
            },
        }
    },
    "signature in an endpoint": {"storage_options": {"endpoint": f"https://h/?sig={HUSH}"}},
    "signature of a warehouse": {"warehouse": f"abfs://c@h/w?sig={HUSH}"},
    "option beside a variable": {
        "source": {
            "format": "kafka",
            "options": {
                "kafka.bootstrap.servers": "h:1",
                "subscribe": "t",
                "kafka.sasl.jaas.config": f'x username="${{env:PATH}}" password="{HUSH}";',
                "kafka.schema.url": URL,
            },
        }
    },
    "token of Pulsar": {
        "source": {
            "format": "pulsar",
            "options": {"serviceUrl": "pulsar+ssl://h:6651", "topics": "a/b/c", "token": HUSH},
        }
    },
    "token of an admin interface": {
        "source": {
            "format": "pulsar_admin",
            "admin": {"cluster": "c", "url": "http://h:1", "namespaces": ["a/b"], "token": HUSH},
        }
    },
    "token of brokers' counters": {"reconcile": {"brokers": ["http://h:1"], "token": HUSH}},
    "options of polled groups": {
        "source": {
            "format": "kafka_groups",
            "groups": {
                "cluster": "c",
                "options": {"bootstrap.servers": "h:1", "sasl.jaas.config": JAAS},
            },
        }
    },
    "options of polled producers": {
        "source": {
            "format": "kafka_producers",
            "options": {**KAFKA, "kafka.sasl.jaas.config": JAAS},
        }
    },
    "options of the throttle feed": {
        "rate_limits": {"protocol": "pip385", "receipt_model": "all"},
        "throttle_feed": {"topic": "t", "options": {**KAFKA, "kafka.ssl.keystore.key": HUSH}},
    },
}
ADMIN = {"cluster": "c", "url": "http://h:1", "namespaces": ["a/b"]}
REFUSED = {
    "address with a user": {"source": {"format": "pulsar_admin", "admin": {**ADMIN, "url": URL}}},
    "address of a broker": {"reconcile": {"brokers": [URL]}},
    "address of a named broker": {"reconcile": {"brokers": {"b:1": URL}}},
    "list for an address": {"reconcile": {"brokers": [[URL]]}},
    "warehouse": {"warehouse": f"s3://me:{HUSH}@bucket/[1]"},
    "list for a token": {"source": {"format": "pulsar_admin", "admin": {**ADMIN, "token": [HUSH]}}},
    "list for an option": {"storage_options": {"AWS_SECRET_ACCESS_KEY": [HUSH]}},
    "options nested": {
        "source": {
            "format": "kafka",
            "options": {**KAFKA, "subscribe": "t", "kafka": {"sasl.jaas.config": JAAS}},
        }
    },
    "text for options": {"storage_options": f"AWS_SECRET_ACCESS_KEY={HUSH}"},
    "text for headers": {
        "alerts": {
            "sinks": [{"type": "webhook", "url": "http://h", "headers": f"Authorization: {HUSH}"}]
        }
    },
    "sink for sinks": {"alerts": {"sinks": {"type": "webhook", "url": f"http://h/{HUSH}"}}},
    "sinks for alerts": {"alerts": [{"type": "webhook", "url": f"http://h/{HUSH}"}]},
    "unknown type": {"alerts": {"sinks": [{"type": "hook", "url": f"http://h/{HUSH}"}]}},
    "no address": {"alerts": {"sinks": [{"type": "webhook", "url": f"me:{HUSH}@h"}]}},
    "unknown key": {"storage": {"AWS_SECRET_ACCESS_KEY": HUSH}},
}


ADDRESSES = re.compile(r"url|headers|options|exporters|brokers|endpoint|^warehouse$")
"""Names of keys that take addresses or options, beside those that are secret by their names."""
TAKE_NO_SECRET = {
    "token_file": "a path",
    "token_fetch_attempts": "a number",
    "tokenbucket": "a word",
}


def keys_of(model: Any, seen: set[Any]) -> Iterator[str]:
    """The keys of a model of the configuration, and of all models in it."""
    for part in (model, *get_args(model)):
        if part is not model and part not in seen:
            yield from keys_of(part, seen)
        if isinstance(part, type) and issubclass(part, BaseModel) and part not in seen:
            seen.add(part)
            for name, field in part.model_fields.items():
                yield name
                yield from keys_of(field.annotation, seen)


def keys_in(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        yield from document
    for each in (
        document.values()
        if isinstance(document, dict)
        else document
        if isinstance(document, list)
        else ()
    ):
        yield from keys_in(each)


def test_every_key_that_can_hold_a_secret_is_tried() -> None:
    keys = {k for k in keys_of(Settings, set()) if SECRET.search(k) or ADDRESSES.search(k)}
    tried = set(keys_in([*CONFIGS.values(), *REFUSED.values()]))
    assert {"url", "token", "storage_options", "options", "exporters", "brokers"} <= keys
    assert keys - tried - TAKE_NO_SECRET.keys() == set()


@pytest.mark.parametrize("document", CONFIGS.values(), ids=CONFIGS)
def test_a_secret_is_in_no_output_of_validate_and_not_in_the_warehouse(document, tmp_path, capsys):
    file = tmp_path / "weir.yaml"
    source = {"source": {"format": "files", "path": "in"}}
    file.write_text(yaml.safe_dump({**source, **document}))
    for form in ([], ["--json"]):
        assert main(["validate", "--config", str(file), *form]) == 0
        out, err = capsys.readouterr()
        assert out and HUSH not in out + err
    settings = load_settings(file)
    assert HUSH not in json.dumps(asdict(described(settings)))
    if "warehouse" not in document:
        assert HUSH not in repr(settings)


@pytest.mark.parametrize("document", REFUSED.values(), ids=REFUSED)
def test_a_secret_is_in_no_message_about_a_mistake(document, tmp_path, capsys):
    file = tmp_path / "weir.yaml"
    file.write_text(yaml.safe_dump({"source": {"format": "files", "path": "in"}, **document}))
    for form in ([], ["--json"]):
        assert main(["validate", "--config", str(file), *form]) == 2
        out, err = capsys.readouterr()
        assert "weir.yaml: " in out + err and HUSH not in out + err


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            {"storage_options": {"AWS_SECRET_ACCESS_KEY": ["x"]}},
            "storage_options.AWS_SECRET_ACCESS_KEY: a list is not text",
        ),
        ({"storage_options": "x"}, "storage_options: '********' is not a mapping of keys"),
        ({"shards": "many"}, "shards: 'many' is not a whole number"),
        ({"rate_limits": {"tokenbucket": "leaky"}}, "tokenbucket: 'leaky' is not supported"),
    ],
)
def test_a_message_has_the_value_that_cannot_be_a_secret(document, said, tmp_path, capsys):
    file = tmp_path / "weir.yaml"
    file.write_text(yaml.safe_dump({"source": {"format": "files", "path": "in"}, **document}))
    assert main(["validate", "--config", str(file)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://host/a@b", "http://host/a@b"),
        ("me@host", "me@host"),
        ("http://me:pw@host/x", "http://********:********@host/x"),
        ("http://${env:U}:${env:P}@host", "http://${env:U}:${env:P}@host"),
        ("http://me:${env:P}@host", "http://********:${env:P}@host"),
        ("http://h/metrics?token=hush", "http://h/metrics?********"),
        ("http://h?a=1&sig=hush#x", "http://h?********"),
        ("http://h?t=${env:T}", "http://h?********${env:T}********"),
        ("http://h?${env:T}", "http://h?${env:T}"),
        (
            "at http://h/?x=hush and 'https://u@h/?y=hush'",
            "at http://h/?******** and 'https://********@h/?********'",
        ),
        ("GET /metrics?token=hush&b=1", "GET /metrics?token=********&b=1"),
        ('x username="me" password="hush";', 'x username="me" password=********;'),
        (
            "AWS_SECRET_ACCESS_KEY=hush api_key = hush",
            "AWS_SECRET_ACCESS_KEY=******** api_key = ********",
        ),
        ("Authorization: Bearer hush, x", "Authorization: Bearer ********, x"),
        ("token_file=/a and tokenbucket=b", "token_file=/a and tokenbucket=b"),
        ("http://a:b@h, http://c:d@i", "http://********:********@h, http://********:********@i"),
    ],
)
def test_an_address_keeps_its_host(text, shown):
    assert without_secrets([{"url": text}]) == [{"url": shown}]


def test_a_secret_keeps_its_variables():
    assert masked("${env:PW}") == "${env:PW}"
    assert masked("plain") == "********"
    assert masked('user="me" password="${env:PW}"') == "********${env:PW}********"


def test_texts_of_others_are_masked_in_bounded_time():
    begun = time.monotonic()
    for text in (
        "a" * 10**6,
        "a://" * 10**5,
        "http://" + "b" * 10**6,
        "token=" * 10**5,
        "://?" * 10**5,
    ):
        assert isinstance(without_secrets(text), str)
    assert time.monotonic() - begun < 30


def test_an_error_of_a_command_has_no_secret(capsys, monkeypatch, tmp_path):
    def fails(*_, **__):
        raise UserError(f"{URL}/x?token={HUSH} does not answer\npassword={HUSH}")

    monkeypatch.setattr("app.show.alerts.rules", fails)
    assert main(["alerts", "rules", "--warehouse", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert (
        err
        == "weir: http://********:********@host:8080/x?******** does not answer\npassword=********\n"
    )
