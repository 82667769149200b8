"""What tests share of broker logs."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa

from app.config.source import KafkaLogsSettings
from app.sources.files.listed import listed
from app.sources.kafka import broker_logs

LOGS = KafkaLogsSettings(cluster="east", broker="b1")


def unpack(path: Path | str, *files: Path, logs: KafkaLogsSettings = LOGS) -> list[pa.RecordBatch]:
    """The records of files of a source, or of all that lie below its path."""
    names = [f.as_uri() for f in files] or [one.path for one in listed(str(path))]
    given = iter([pa.record_batch({"path": pa.array(names)})])
    return list(broker_logs.unpack(given, str(path), logs))


def put(file: Path, *lines: bytes) -> Path:
    """Write a file of lines, packed if it is named so."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = b"\n".join(lines) + b"\n"
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
    return file
