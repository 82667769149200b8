"""What tests share of assignment."""

from __future__ import annotations

from pathlib import Path

from app.config.settings import Settings
from app.tables import checkpoints


def come_to(settings: Settings, query: str, planned: int = 3, ended: int = 3) -> Path:
    """A checkpoint as Spark leaves it after some batches."""
    folder = Path(checkpoints.location(settings.location, query))
    checkpoints.application_id(settings.location, query)
    for log, last in (("offsets", planned), ("commits", ended)):
        (folder / log).mkdir(parents=True)
        for batch in range(last + 1):
            (folder / log / str(batch)).write_text("v1\n")
    (folder / "metadata").write_text('{"id":"7b1f45fb-aaa2-4a4f-a10c-351dfff2885b"}')
    return folder
