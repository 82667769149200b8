"""The decoder of single lines, for rows that the scanner declines; it defines the contents of a
record.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec
import pyarrow as pa

from app.contract.parsing.layout import INDEX
from state.events import COLUMNS

_TYPES: dict[pa.DataType, Any] = {
    pa.string(): str,
    pa.int64(): Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    pa.int32(): Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)],
    pa.bool_(): bool,
    pa.binary(): str,
    pa.list_(pa.string()): list[str],
}
_RECORD = msgspec.json.Decoder(
    msgspec.defstruct("Record", [(c.name, _TYPES[c.type] | None, None) for c in COLUMNS])
)
_COLUMN = [msgspec.json.Decoder(_TYPES[c.type] | None) for c in COLUMNS]
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NOTHING = (None,) * len(COLUMNS)
MOST_TEXTS = 100_000
"""Texts of a record, by its quotes: an empty one takes 20 times what the record has for it."""


class DecodedLine(NamedTuple):
    """One decoded line."""

    values: tuple[Any, ...]
    """In the order of the contract; `payload` is still base64 text."""
    bad_type: int
    """Bit set of the columns whose value does not fit; their value is None."""
    reason: str | None
    """Why the line is UNPARSEABLE, or None."""


def decode(line: bytes) -> DecodedLine:
    """Decode one JSON record; never raises for any bytes."""
    try:
        if line.count(b'"') > 2 * MOST_TEXTS:
            return _unparseable(f"more than {MOST_TEXTS:,} texts")
        line.decode()
        return DecodedLine(msgspec.structs.astuple(_RECORD.decode(line)), 0, None)
    except msgspec.ValidationError:
        return _by_column(line)
    except UnicodeDecodeError:
        return _unparseable("not UTF-8")
    except RecursionError:
        return _unparseable("nested too deep")
    except msgspec.DecodeError as error:
        return _unparseable(str(error) if line.strip() else "blank")


def _by_column(line: bytes) -> DecodedLine:
    """Decode a line with a value of another type than its column."""
    try:
        members = _MEMBERS.decode(line)
    except msgspec.ValidationError:
        return _unparseable("not an object")
    except msgspec.DecodeError as error:
        return _unparseable(str(error))
    except RecursionError:
        return _unparseable("nested too deep")
    values: list[Any] = list(_NOTHING)
    bad = 0
    for name, raw in members.items():
        at = INDEX.get(name)
        if at is None:
            continue
        try:
            values[at] = _COLUMN[at].decode(raw)
        except (msgspec.ValidationError, RecursionError):
            bad |= 1 << at
        except msgspec.DecodeError as error:
            return _unparseable(str(error))
    return DecodedLine(tuple(values), bad, None)


def _unparseable(reason: str) -> DecodedLine:
    return DecodedLine(_NOTHING, 0, reason)


NO_VALUE = _unparseable("null")
"""The decoded line of a record without a value (a Kafka tombstone)."""
