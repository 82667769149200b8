"""Caches compiled functions under a hash of their source and of all that it imports.

Numba's own cache identifies a function by the folder and the bytes of its file. It recompiles after
a move (every application of a cluster unpacks the sources somewhere else), and it does not notice a
change in another file that the function calls. Here the cache key is a hash of the module and of
every module of Weir that it imports, directly or not: equal sources share compiled code wherever
they are, and a change recompiles only what can depend on it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from llvmlite import binding
from numba.core import config
from numba.core.caching import _CacheLocator
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.types.functions import BaseFunction
from numba.np import linalg

import udfs.worlds  # noqa: F401 - how tuples are passed to all that is compiled here

ROOMS = ("app", "state", "udfs")
_IMPORT = re.compile(
    rf"^\s*(?:from\s+((?:{'|'.join(ROOMS)})[\w.]*)\s+import\s+(\([^)]*\)|.*)"
    rf"|import\s+((?:{'|'.join(ROOMS)})[\w.]*))",
    re.MULTILINE,
)


def _no_linear_algebra() -> None:
    """No compiled function has any, and numba loads a fifth of a second of scipy to look for it."""
    raise ImportError


linalg.ensure_blas = _no_linear_algebra

_resolve = BaseFunction.get_call_type
_resolved: dict[tuple[int, Any], tuple[BaseFunction, Any]] = {}


def _resolved_once(
    function: BaseFunction, context: Any, values: tuple[Any, ...], names: dict[str, Any]
) -> Any:
    """The signature of a call of numba's own functions, an addition for example: it tries dozens of
    candidates for the same types again at each call, a sixth of all compiling."""
    if names:
        return _resolve(function, context, values, names)
    key = id(function), values
    if key not in _resolved:
        _resolved[key] = function, _resolve(function, context, values, names)
    return _resolved[key][1]


BaseFunction.get_call_type = _resolved_once  # type: ignore[method-assign, assignment]


class _Library(JITCodeLibrary):  # type: ignore[misc]
    """The code of a function. Of one that only other compiled functions call no more than its bitcode
    is kept: it is optimised and made code of the machine as a part of those that Python calls.

    Numba does both for each function with all that it calls, and again for each of its callers: three
    quarters of the time in which a core is compiled.
    """

    _bitcode: bytes | None = None
    """Of a library from the cache, which is parsed where another one calls it."""
    _is_loaded = False

    def finalize(self) -> None:
        if self._object_caching_enabled:
            self._raise_if_finalized()
            self._finalize_dynamic_globals()
            self._finalized = True
        else:  # not of a function: what numba has for all of them
            super().finalize()
            self._is_loaded = True

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if not function.is_declaration:
                passes, builder = self._codegen._function_pass_manager(opt=1)
                passes.run(function, builder)

    def get_pointer_to_function(self, name: str) -> int:
        """The address of a function of this library, 0 if it has none of this name."""
        self._ensure_finalized()
        if not self._is_loaded and name in _defined(self._final_module):
            self._link()
            self._optimize_final_module()
            self._final_module.verify()
            self._finalize_final_module()
            self._is_loaded = True
        return int(super().get_pointer_to_function(name))

    def _link(self) -> None:
        """Take over all that is called, directly or not."""
        libraries = list(dict.fromkeys(self._linking_libraries))
        for library in libraries:  # those that are added meanwhile, too
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
            libraries += [each for each in library._linking_libraries if each not in libraries]
        self._linking_libraries.clear()
        self._shared_module = None

    def serialize_using_object_code(self) -> Any:
        if not self._is_loaded:
            self._link()
        code = self._get_compiled_object() if self._is_loaded else None
        module = self._get_module_for_linking()
        return self.name, "object", (code, (module.as_bitcode(), [*_defined(module)]))

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> _Library:
        name, _, (code, (bitcode, defined)) = state
        self: _Library = codegen.create_library(name)
        self._bitcode = bitcode
        if code is None:
            self._finalized = True
            return self
        self.enable_object_caching()
        self._set_compiled_object(code)
        self._finalize_final_module()
        self._is_loaded = True
        codegen._engine._defined_symbols.update(defined)
        return self

    def _get_module_for_linking(self) -> Any:
        if self._bitcode is not None:
            self._shared_module, self._bitcode = binding.parse_bitcode(self._bitcode), None
        return super()._get_module_for_linking()


def _defined(module: Any) -> set[str]:
    """The functions and variables of a module that are not of another one."""
    values = (*module.functions, *module.global_variables)
    return {value.name for value in values if not value.is_declaration}


def _set_env(codegen: JITCPUCodegen, name: str, env: Any) -> None:
    """Only loaded code has an environment, and only what Python calls looks into it."""
    if codegen._engine.is_symbol_defined(name):
        _set_env_of(codegen, name, env)


_set_env_of, JITCPUCodegen.set_env = JITCPUCodegen.set_env, _set_env
JITCPUCodegen._library_class = _Library


class BySources(_CacheLocator):  # type: ignore[misc]
    """The cache folder, below NUMBA_CACHE_DIR, for the functions of one module of Weir."""

    def __init__(self, module: str, line: int) -> None:
        self._line = line
        self._stamp = stamp(module)
        self._path = Path(config.CACHE_DIR) / f"{module}-{self._stamp[:16]}"

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> BySources | None:
        """None for a function that is not Weir's, or if nothing can be written."""
        module = py_func.__module__
        if not config.CACHE_DIR or module.partition(".")[0] not in ROOMS:
            return None
        found = cls(module, py_func.__code__.co_firstlineno)
        return found if _takes_files(found._path) else None


@cache
def _takes_files(folder: Path) -> bool:
    """Whether files can be made in a folder, which is made itself: the functions of a module share it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


@cache
def stamp(module: str) -> str:
    """Hash of a module's source, of all of Weir that it imports, and of how it is compiled,
    hexadecimal."""
    names = {*_closure(module), *_closure(__name__)}
    sources = (f"{name}\0{_source(name)}\0" for name in sorted(names))
    return hashlib.sha256("".join(sources).encode()).hexdigest()


def is_current(place: str) -> bool:
    """Whether a folder of this name has code compiled from these sources."""
    module, _, found = place.rpartition("-")
    return (
        module.partition(".")[0] in ROOMS
        and _source(module) is not None
        and (stamp(module).startswith(found))
    )


def remove_stale(folder: Path) -> None:
    """Remove code compiled from other sources."""
    for place in folder.iterdir():
        if place.is_dir() and not is_current(place.name):
            shutil.rmtree(place, ignore_errors=True)


def _closure(module: str) -> list[str]:
    found = [module]
    for name in found:  # those that are added meanwhile, too
        found += _imports(name).difference(found)
    return found


@cache
def _imports(module: str) -> frozenset[str]:
    """Modules of Weir that a module imports, including imports inside functions."""
    found = set()
    for origin, names, plain in _IMPORT.findall(_source(module) or ""):
        candidates = [plain or origin]
        # Only packages have modules in them, and to look for one in anything else would load that.
        if origin and getattr(_spec(origin), "submodule_search_locations", None) is not None:
            for name in re.findall(r"\w+", re.sub(r"#.*", "", names)):
                candidates.append(f"{origin}.{name}")
        found |= {name for name in candidates if _source(name) is not None}
    return frozenset(found)


@cache
def _source(module: str) -> str | None:
    """The source file of a module; None if there is none."""
    # Of a file or of a zip; a folder without __init__.py has a loader without sources.
    read = getattr(getattr(_spec(module), "loader", None), "get_source", None)
    return read(module) if read else None


@cache
def _spec(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
