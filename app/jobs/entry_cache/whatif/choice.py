"""The caches that a bake-off compares: policies, sizes and settings from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from pydantic import ValidationError

from app.config.base import in_units
from app.config.documents import value_of
from app.config.reading import describe
from app.errors import UserError, did_you_mean
from app.jobs.entry_cache.whatif.curves import Curve
from app.terminal.sizes import read_size
from state.entry_cache.outputs import POLICIES
from state.entry_cache.parameters import CacheVariant, EntryCacheParameters

MIB = 2**20
LARGEST = 2**62
VARIED = tuple(
    name
    for name in CacheVariant.model_fields
    if name not in ("policy", "max_bytes", "managedLedgerCacheSizeMB")
)


def curves(policies: str | None, vary: Sequence[str] = ()) -> list[Curve]:
    """Every policy with every combination of the varied settings, each `NAME=VALUE,VALUE`."""
    names = list(POLICIES) if policies is None else _words(policies)
    for name in names:
        if name not in POLICIES:
            raise UserError(f"--policies {name}: is not a policy ({_allowed(name, POLICIES)})")
    if not names:
        raise UserError(f"--policies: names none (allowed: {', '.join(POLICIES)})")
    settings = [_varied(text) for text in vary]
    keys = [name for name, _ in settings]
    for name in keys:
        if keys.count(name) > 1:
            raise UserError(f"--vary {name}: is given twice; give all its values at once")
    return [
        Curve(name, tuple(zip(keys, values, strict=True)))
        for name in dict.fromkeys(names)
        for values in product(*(values for _, values in settings))
    ]


def sizes(text: str | None) -> list[int] | None:
    """Sizes in bytes, smallest first; None if none are given."""
    if text is None:
        return None
    found = set()
    for word in _words(text):
        size = read_size(word)
        if size is not None and size >= LARGEST:
            raise UserError(f"--sizes {word}: is above the largest size ({LARGEST - 1} bytes)")
        if not size:
            raise UserError(
                f"--sizes {word}: is not a size above 0 (allowed: bytes, or a number with kB, MB, "
                "GB, KiB, MiB or GiB, for example 64MB,128MB)"
            )
        found.add(size)
    if not found:
        raise UserError("--sizes: names none; for example 64MB,128MB")
    return sorted(found)


def configured_size(own: EntryCacheParameters) -> int | None:
    """The configured size of caches, if any."""
    if own.max_bytes is not None:
        return own.max_bytes or None
    mebibytes = own.managedLedgerCacheSizeMB
    return round(mebibytes * MIB) if mebibytes else None


def _words(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word]


def _allowed(name: str, allowed: Sequence[str]) -> str:
    near = did_you_mean(name, allowed)
    every = f"allowed: {', '.join(allowed)}"
    return near if near == every else f"{near} {every}"


def _varied(text: str) -> tuple[str, list[Any]]:
    name, sign, values = text.partition("=")
    name = name.strip()
    if name not in VARIED:
        raise UserError(f"--vary {name}: is not a setting of a cache ({_allowed(name, VARIED)})")
    words = _words(values)
    if not sign or not words:
        raise UserError(f"--vary {text}: write NAME=VALUE,VALUE")
    values_read = []
    for word in words:
        try:
            value = value_of(word, f"--vary {text}")
            variant = CacheVariant.model_validate(in_units({name: value}))
        except ValidationError as error:
            raise UserError(f"--vary {text}: {describe(error, CacheVariant)[0]}") from error
        values_read.append(getattr(variant, name))
    return name, list(dict.fromkeys(values_read))
