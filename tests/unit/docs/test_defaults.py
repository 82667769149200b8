"""What pages say of defaults is what a configuration without the key has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.config.settings import Settings, settings_of_document
from app.config.source import POLLED
from state.jobs import BY_DEFAULT, DECLARED

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "configs/weir.yaml"], key=str
)
OF_KAFKA = {"kafka.bootstrap.servers": "k:9092"}


def jobs(*formats: str) -> set[str]:
    """The jobs of a configuration that names feeds alone."""
    feeds = [
        {
            "format": name,
            "cluster": "east",
            "options": OF_KAFKA,
            **({"quotas": {"exporters": {"1": "http://k:7071"}}} if name == "kafka_quotas" else {}),
        }
        for name in formats
    ]
    return set(settings_of_document({"source": feeds}, None).jobs)


@pytest.mark.parametrize("job", DECLARED)
def test_what_a_page_says_of_a_job_by_default(job: str) -> None:
    page = (ROOT / "docs/semantics" / f"{job}.md").read_text("utf-8")
    text = " ".join(page.split())
    said = re.findall(r"runs by default where `(\w+)`", text)
    assert "does not run by default" not in text or job not in BY_DEFAULT
    if job in BY_DEFAULT:
        assert not said
        return
    assert said, "a page of a job that is not always there says where it is"
    for feed in POLLED:
        if feed.startswith("kafka_"):
            assert (job in jobs(feed)) == (feed in said), feed


def test_no_page_says_otherwise() -> None:
    for page in PAGES:
        text = " ".join(page.read_text("utf-8").split())
        for claim in ("reads one source into", "client_quotas` does not run by default"):
            assert claim not in text, (page, claim)


def defaults(model: Settings, path: str) -> object:
    """The value of a key that a configuration leaves out."""
    found: object = model
    for name in path.split("."):
        found = getattr(found, name)
    return found


UNITS = {"an hour": 3_600_000, "five minutes": 300_000, "ten minutes": 600_000, "a day": 86_400_000}


@pytest.mark.parametrize(
    ("page", "sentence", "key"),
    [
        ("queries.md", r"can be read for (a\w* \w+) after the next one", "maintenance.history_ms"),
        ("quality.md", r"`quality.interval_ms` \((\w+ \w+);", "quality.interval_ms"),
    ],
)
def test_a_default_on_a_page_is_that_of_the_configuration(
    page: str, sentence: str, key: str
) -> None:
    text = " ".join((ROOT / "docs" / page).read_text("utf-8").split())
    (said,) = re.findall(sentence, text)
    assert defaults(settings_of_document({}, None), key) == UNITS[said]
