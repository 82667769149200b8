"""Blobs of columns, as routers write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from state.engine.blobs import TEXTS, with_payload, write
from state.engine.kernel import NULL
from udfs.arrow import bytes_of, integers, offsets_of, plain

NONE = -1
"""The code of a text that is null."""


def of_columns(columns: Mapping[str, Any], payload: pa.Array | None = None) -> bytes:
    """One blob of columns as Arrow or numpy arrays; null in columns of numbers becomes NULL."""
    texts: list[pa.Array] = []
    values = np.empty((len(columns), len(next(iter(columns.values())))), np.int64)
    known = 0
    for i, (name, column) in enumerate(columns.items()):
        if name in TEXTS:
            array = plain(column if isinstance(column, pa.Array) else pa.array(column))
            array = array if array.type == pa.string() else array.cast(pa.string())
            encoded = array.dictionary_encode()
            codes = integers(encoded.indices, NONE)
            values[i] = np.where(codes >= 0, codes + known, NONE)
            texts.append(encoded.dictionary)
            known += len(encoded.dictionary)
        elif isinstance(column, pa.Array):
            values[i] = integers(column, NULL)
        else:
            values[i] = column
    names = pa.concat_arrays(texts) if texts else pa.array([], pa.string())
    data, _ = write(
        tuple(columns),
        values,
        np.array([0, values.shape[1]], np.int64),
        bytes_of(names),
        offsets_of(names).astype(np.int64),
    )
    return with_payload(data.tobytes(), payload)
