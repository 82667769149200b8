"""What tests share of broker log lines."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from app.sources.kafka import dump_log as dump_log
from app.sources.kafka import request_log as request_log

AT = int(datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC).timestamp()) * 1000


def completed(
    pid: object = 7, prefix: str = "[2026-03-01 12:00:00,125] DEBUG ", **change: Any
) -> bytes:
    """A line of a request log; `change` replaces members of the JSON, None takes them out."""
    members = {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": 22,
            "requestApiVersion": 4,
            "correlationId": 2,
            "clientId": "app",
            "requestApiKeyName": "INIT_PRODUCER_ID",
        },
        "request": {
            "transactionalId": None,
            "transactionTimeoutMs": -1,
            "producerId": -1,
            "producerEpoch": -1,
        },
        "response": {"throttleTimeMs": 0, "errorCode": 0, "producerId": pid, "producerEpoch": 0},
        "connection": "127.0.0.1:9092-127.0.0.1:4242-0-0",
        "totalTimeMs": 3.25,
        "securityProtocol": "SASL_PLAINTEXT",
        "principal": "User:alice",
        "listener": "L",
        **change,
    }
    text = json.dumps({k: v for k, v in members.items() if v is not None}, separators=(",", ":"))
    return f"{prefix}Completed request:{text} (kafka.request.logger)".encode()


def header(**change: Any) -> dict[str, Any]:
    return {"requestApiKey": 22, "clientId": "app", **change}


def batch(**change: object) -> bytes:
    """A line of a dump; the key `time` is the kind of time."""
    time = change.pop("time", "CreateTime")
    fields: dict[str, object] = {
        "baseOffset": 10,
        "lastOffset": 12,
        "count": 3,
        "baseSequence": 0,
        "lastSequence": 2,
        "producerId": 7,
        "producerEpoch": 0,
        "partitionLeaderEpoch": 0,
        "isTransactional": "false",
        "isControl": "false",
        "deleteHorizonMs": "OptionalLong.empty",
        "position": 0,
        str(time): AT,
        "size": 97,
        "magic": 2,
        "compresscodec": "none",
        "crc": 1,
        "isvalid": "true",
        **change,
    }
    return " ".join(f"{k}: {v}" for k, v in fields.items() if v is not None).encode()


LOG = b"Dumping /var/kafka/a.b-c_d-12/00000000000000000000.log"
