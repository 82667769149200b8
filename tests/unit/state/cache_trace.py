"""Small traces of entry caches, shipped to the core as the router ships them."""

from __future__ import annotations

from tests.unit.state.shipping import Row, Shipper, params_of

PARAMS = params_of("entry_cache")
_SHIPPER = Shipper("entry_cache", PARAMS)
blob, numbered, play = _SHIPPER.blob, _SHIPPER.numbered, _SHIPPER.play

__all__ = ["PARAMS", "Row", "blob", "numbered", "play"]
