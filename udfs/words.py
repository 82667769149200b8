"""Bytes of a buffer, eight at a time, by address: the building blocks of the compiled byte loops.

Addresses instead of arrays, because every array that a compiled helper takes costs two atomic
reference counts. With `NUMBA_DISABLE_JIT=1` the same names are plain Python.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def word_at(typingctx: Any, address: Any) -> Any:
    """The little-endian word at an address that need not be aligned."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def byte(typingctx: Any, address: Any) -> Any:
    """The byte at an address, as int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _trailing_zeros(typingctx: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


if numba.config.DISABLE_JIT:

    def word_at(address: int) -> np.uint64:
        return np.uint64(int.from_bytes(ctypes.string_at(int(address), 8), "little"))

    def byte(address: int) -> int:
        return ctypes.string_at(int(address), 1)[0]

    def _trailing_zeros(word: np.uint64) -> np.uint64:
        value = int(word)
        return np.uint64((value & -value).bit_length() - 1)


@numba.njit(forceinline=True)
def low_byte(flags: np.uint64) -> np.int64:
    """Index of the lowest byte of a word with a bit set; the word must not be 0."""
    return np.int64(_trailing_zeros(flags) >> np.uint64(3))


@numba.njit
def _tail(address: int, limit: int) -> np.uint64:
    word = np.uint64(0)
    for i in range(limit - address):
        word |= np.uint64(byte(address + i)) << np.uint64(8 * i)
    return word


@numba.njit(forceinline=True)
def load(address: int, limit: int) -> np.uint64:
    """The 8 bytes from an address as a little-endian word; those from `limit` on read as 0."""
    if address + 8 <= limit:
        return word_at(address)
    return _tail(address, limit)


@numba.njit(forceinline=True)
def first_bytes(word: np.uint64, count: int) -> np.uint64:
    """The first `count` (0 to 7) bytes of a word, the others 0."""
    return word & ((np.uint64(1) << np.uint64(8 * count)) - np.uint64(1))


@numba.njit(forceinline=True)
def same_bytes(a: int, b: int, length: int, limit: int) -> bool:
    """Whether two stretches of one buffer, given by address, hold the same bytes."""
    i = 0
    while i + 8 <= length:
        if load(a + i, limit) != load(b + i, limit):
            return False
        i += 8
    rest = length - i
    return rest == 0 or first_bytes(load(a + i, limit), rest) == first_bytes(
        load(b + i, limit), rest
    )
