"""How the rules of a job are compiled, and kept for the next process."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba.core import config, serialize
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.registry import CPUDispatcher

_OPTIONS = {"nopython": True, "nogil": True, "_nrt": False}
"""numba's reference counting is off: counting every array of a World at every call would take six
times as long as the rules themselves. Therefore a compiled function must not create arrays.
"""
_WITHOUT_ENTRY = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function that only reads and writes the arrays that it is given."""
    return function if config.DISABLE_JIT else _Compiled(function, {})


def inlined(function: Callable[..., Any]) -> Any:
    """As `compiled`, for functions that run once per record and have one or two callers: compiled
    into them."""
    return function if config.DISABLE_JIT else _Compiled(function, {"forceinline": True})


def generator(function: Callable[..., Any]) -> Any:
    """As `inlined`, for generators. They are not kept for the next process: numba compiles no caller
    of a generator that it has read from its cache.
    """
    if config.DISABLE_JIT:
        return function
    return CPUDispatcher(function, targetoptions=_OPTIONS | {"forceinline": True})


class _Small(CompileResultCacheImpl):  # type: ignore[misc]
    """Compiled code is kept compressed: the types of a World are part of each of its names."""

    def reduce(self, cres: Any) -> bytes:
        return zlib.compress(serialize.dumps(super().reduce(cres)), 1)

    def rebuild(self, target_context: Any, payload: bytes) -> Any:
        return super().rebuild(target_context, pickle.loads(zlib.decompress(payload)))


class _Cache(FunctionCache):  # type: ignore[misc]
    _impl_class = _Small


class _ForPython(CPUDispatcher):  # type: ignore[misc]
    """A function that Python calls."""

    def enable_caching(self) -> None:
        self._cache = _Cache(self.py_func)


class _Compiled(_ForPython):
    """A function that other compiled functions call. A call from Python goes to a second version of
    it, which is compiled when it is first needed.

    What takes the values of a call from Python apart, a World of arrays among them, is compiled with
    it, and of eighteen functions of a core one is called from Python.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, bool]) -> None:
        super().__init__(function, targetoptions=_OPTIONS | _WITHOUT_ENTRY | options)
        self.enable_caching()
        self._for_python: _ForPython | None = None

    def __call__(self, *values: Any) -> Any:
        if self._for_python is None:
            self._for_python = self._with_entry()
        return self._for_python(*values)

    def _with_entry(self) -> _ForPython:
        """The function under another name, since its name is that of its file in the cache."""
        function = self.py_func
        name = f"{function.__name__}_for_python"
        code = function.__code__.replace(co_name=name, co_qualname=name)
        renamed = FunctionType(
            code, function.__globals__, name, function.__defaults__, function.__closure__
        )
        renamed.__module__ = function.__module__
        result = _ForPython(renamed, targetoptions=_OPTIONS)
        result.enable_caching()
        return result
