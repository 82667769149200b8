"""The checkpoint of a query: its place, its progress, and what it has committed to the tables.

Spark keeps source offsets (`offsets/N`), ended batches (`commits/N`) and state there. Weir adds the
application id of the query's commits; in a warehouse in a local folder also the last batches of
each table; and for Kafka the limit of a batch.
"""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.errors import UserError
from app.warehouse.small_files import local_path, names, path_in, read_text, write_text

if TYPE_CHECKING:
    from app.config.settings import Settings

FOLDER = "_weir/checkpoints"
APPLICATION = "weir-application-id"
COMMITTED = "weir-committed.json"
MOST_RECORDS = "weir-most-records"
FIRST = "weir-first-offset.json"
POLICIES = "weir-policies.json"
COPYING = ".copying"
RESHARDING = "_weir/resharding"
"""Folder in which `reshard` builds checkpoints."""
BEFORE = ".before"
PARTITIONS = "spark.sql.shuffle.partitions"
ARCHIVE = "archive"
"""Name of the query that archives the records."""


@dataclass(frozen=True)
class Commit:
    """The last batch that a query has written to a table, and the one before (-1: none)."""

    application: str
    batch: int
    before: int


def location(settings: Settings, query: str) -> str:
    """The path of a query's checkpoint."""
    return path_in(settings, f"{FOLDER}/{query}")


def found(settings: Settings) -> list[str]:
    """The queries that have a checkpoint in a warehouse on this machine."""
    local = local_path(settings.warehouse)
    folder = None if local is None else local / FOLDER
    if folder is None or not folder.is_dir():
        return []
    kept = [path.name for path in folder.iterdir() if path.is_dir()]
    return sorted(name for name in kept if not name.endswith(COPYING) and begun(settings, name))


def begun(settings: Settings, query: str) -> bool:
    """Whether the query has planned a batch."""
    return last_planned(settings, query) >= 0


def last_planned(settings: Settings, query: str) -> int:
    """The newest batch that was planned; -1 for none."""
    return _last(settings, query, "offsets")


def last_ended(settings: Settings, query: str) -> int:
    """The newest batch that has ended; -1 for none."""
    return _last(settings, query, "commits")


def settled(settings: Settings, query: str) -> bool:
    """Whether every planned batch has ended."""
    return last_planned(settings, query) == last_ended(settings, query)


def _last(settings: Settings, query: str, log: str) -> int:
    found = names(settings, f"{FOLDER}/{query}/{log}")
    return max((int(name) for name in found if name.isdigit()), default=-1)


def planned(settings: Settings, query: str) -> int | None:
    """The batch that was planned and has not ended; None if there is none."""
    newest = _last(settings, query, "offsets")
    return None if newest == last_ended(settings, query) else newest


def plan_anew(settings: Settings, query: str) -> bool:
    """Forget the first batch that a query has planned, if it has not ended: nothing has been read,
    so the query plans from the beginning that the source has now. False if a batch has ended, or in
    an object store.
    """
    local = local_path(settings.warehouse)
    if local is None or last_ended(settings, query) >= 0:
        return False
    folder = local / FOLDER / query
    for log in ("offsets", "sources/0"):
        for name in ("0", ".0.crc"):
            (folder / log / name).unlink(missing_ok=True)
    return True


def offsets(settings: Settings, query: str, batch: int) -> dict[str, Any]:
    """The end of a batch in the source, as Spark records it; for batch -1 the start of the first
    batch.

    Empty if not known: only Kafka records a start.
    """
    file = f"offsets/{batch}" if batch >= 0 else "sources/0/0"
    text = read_text(settings, f"{FOLDER}/{query}/{file}")
    found: dict[str, Any] = json.loads(text.splitlines()[-1]) if text else {}
    return found


def watermark_ms(settings: Settings, query: str, batch: int) -> int:
    """The stream's clock at the beginning of a planned batch (ms since the epoch; 0 for none)."""
    return int(_about(settings, query, f"offsets/{batch}").get("batchWatermarkMs", 0))


def next_watermark_ms(settings: Settings, query: str, batch: int) -> int:
    """The stream's clock after a batch that has ended (ms since the epoch; 0 for none)."""
    return int(_about(settings, query, f"commits/{batch}").get("nextBatchWatermarkMs", 0))


def _about(settings: Settings, query: str, file: str) -> dict[str, Any]:
    """What Spark has in the second line of a file; nothing if there is none."""
    text = read_text(settings, f"{FOLDER}/{query}/{file}")
    lines = text.splitlines() if text else []
    found: dict[str, Any] = json.loads(lines[1]) if len(lines) > 1 else {}
    return found


def drained(settings: Settings, query: str) -> bool:
    """Whether the last batch is one of `plan_without_records`: its clock is not what the batch
    before has left.
    """
    last = last_ended(settings, query)
    return last > 0 and watermark_ms(settings, query, last) != next_watermark_ms(
        settings, query, last - 1)


def plan_without_records(settings: Settings, query: str, watermark_ms: int, now_ms: int) -> None:
    """Plan one more batch, at the end of the last one in the source and with another clock: the
    next start of a query whose batches have ended begins with it, as with any that was interrupted.
    """
    last, folder = last_ended(settings, query), f"{FOLDER}/{query}/offsets"
    text = read_text(settings, f"{folder}/{last}")
    assert text is not None
    version, about, *sources = text.split("\n")
    found = {**json.loads(about), "batchWatermarkMs": watermark_ms, "batchTimestampMs": now_ms}
    text = "\n".join([version, json.dumps(found, separators=(",", ":")), *sources])
    write_text(settings, f"{folder}/{last + 1}", text)


def policies(settings: Settings, query: str) -> dict[str, Any] | None:
    """The policies that a query has judged by, as `app.warehouse.policy_log` keeps them."""
    text = read_text(settings, f"{FOLDER}/{query}/{POLICIES}")
    return None if text is None else dict(json.loads(text))


def keep_policies(settings: Settings, query: str, document: dict[str, Any]) -> None:
    """Record the policies that a query judges by."""
    text = json.dumps(document, ensure_ascii=False)
    write_text(settings, f"{FOLDER}/{query}/{POLICIES}", text)


def most_records(settings: Settings, query: str) -> int | None:
    """The limit of a batch under which the unfinished batches were planned."""
    text = read_text(settings, f"{FOLDER}/{query}/{MOST_RECORDS}")
    return int(text) if text and text.isdigit() else None


def keep_most_records(settings: Settings, query: str, most: int) -> None:
    """Record the limit of a batch under which a query plans."""
    write_text(settings, f"{FOLDER}/{query}/{MOST_RECORDS}", str(most))


def first_offset(settings: Settings, query: str) -> dict[str, Any] | None:
    """The start of a query's first batch, for sources whose start Spark does not record."""
    text = read_text(settings, f"{FOLDER}/{query}/{FIRST}")
    return None if text is None else dict(json.loads(text))


def keep_first_offset(settings: Settings, query: str, document: dict[str, Any]) -> None:
    """Record the start of a query's first batch."""
    write_text(settings, f"{FOLDER}/{query}/{FIRST}", json.dumps(document))


def application_id(settings: Settings, query: str) -> str:
    """The application id of a query's commits; a new checkpoint gets a new one."""
    kept = read_text(settings, f"{FOLDER}/{query}/{APPLICATION}")
    return new_application_id(settings, query) if kept is None else kept


def new_application_id(settings: Settings, query: str) -> str:
    """Give the following commits of a query a new application id."""
    made = f"weir-{query}-{uuid.uuid4()}"
    write_text(settings, f"{FOLDER}/{query}/{APPLICATION}", made)
    return made


def is_whole(settings: Settings, query: str) -> bool:
    """Whether the checkpoint of a query that has begun has the files that Spark writes before it
    plans the last batch: the query's id and the end of the batch before.
    """
    named = read_text(settings, f"{FOLDER}/{query}/metadata") is not None
    return named and last_planned(settings, query) <= last_ended(settings, query) + 1


def committed(settings: Settings, query: str) -> dict[str, Commit]:
    """The last commits of the query by table; empty if they are not recorded."""
    text = read_text(settings, f"{FOLDER}/{query}/{COMMITTED}")
    if text is None:
        return {}
    try:
        return {table: Commit(**commit) for table, commit in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        raise UserError(
            f"{location(settings, query)}/{COMMITTED}: is damaged\n"
            "remove it: the tables are then not compared with this query's last batches"
        ) from None


def record(settings: Settings, query: str, commits: dict[str, Commit]) -> None:
    """Record the last commits of the query."""
    text = json.dumps({table: asdict(commit) for table, commit in commits.items()})
    write_text(settings, f"{FOLDER}/{query}/{COMMITTED}", text)


def without_state(source: Path, target: Path, partitions: int, ended: int) -> None:
    """Copy a checkpoint without its states, for another number of shuffle partitions. Plans of
    batches after `ended` are left out.
    """
    shutil.copytree(source, target, ignore=lambda _, names: {"state"} & set(names))
    for file in (target / "offsets").iterdir():
        if not file.name.isdigit() or int(file.name) > ended:
            file.unlink()  # or a checksum of the file as it was, which Spark would refuse
            continue
        version, about, *sources = file.read_text().split("\n")
        found = json.loads(about)
        found["conf"][PARTITIONS] = str(partitions)
        about = json.dumps(found, separators=(",", ":"))
        file.write_text("\n".join([version, about, *sources]))


def put_in_place(root: Path, query: str) -> None:
    """Replace the checkpoint of a query by the one that `reshard` built. Repeated after a crash, it
    completes the replacement.
    """
    place, built = root / FOLDER / query, root / RESHARDING / query
    if not built.exists():
        return
    if place.exists():
        before = built.with_name(query + BEFORE)
        shutil.rmtree(before, ignore_errors=True)
        place.rename(before)
    built.rename(place)


def copy(settings: Settings, query: str, new: str) -> None:
    """Copy the progress of `query` to the query `new`, which gets an application id of its own.

    Raises UserError if the warehouse is not a local folder.
    """
    root = local_path(settings.warehouse)
    if root is None:
        raise UserError(
            f"queries: {query} runs more jobs than it is given now, and its checkpoint is in "
            f"{settings.warehouse}\nqueries that have begun can only be split in a warehouse on "
            f"this machine; put queries back as they were, or take another warehouse"
        )
    target = root / FOLDER / new
    unfinished = Path(f"{target}{COPYING}")
    try:
        for old in (unfinished, target):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(root / FOLDER / query, unfinished)
        # Spark ends a query that has the id of one that starts; a stale checksum is refused.
        (unfinished / ".metadata.crc").unlink(missing_ok=True)
        (unfinished / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        unfinished.replace(target)
    except OSError as error:
        raise UserError(
            f"warehouse: cannot copy {root / FOLDER / query} to {target}: {error.strerror or error}"
            "\nthe checkpoint of a query is copied when the query is split"
        ) from error
    new_application_id(settings, new)
