"""How patterns lie to each other, against trying all short names."""

from __future__ import annotations

import re
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from app.config.overlaps import covers, overlaps
from state.engine.globs import expression
from tests.support.effort import drawn

PATTERNS = st.lists(
    st.sampled_from(("a", "b", "/", "*", "**", "?", "[*]")), min_size=0, max_size=3
).map("".join)
NAMES = ["".join(signs) for n in range(6) for signs in product("ab/*", repeat=n)]


@drawn(400)
@given(PATTERNS, PATTERNS)
def test_patterns_overlap_and_cover_as_their_names_do(one: str, other: str) -> None:
    a, b = ({n for n in NAMES if expression(p).fullmatch(n)} for p in (one, other))
    assert any(overlaps({one: 0, other: 1})) == (bool(a & b) and one != other)
    assert b <= a if covers(one, other) else (not b <= a or BESIDE.search(one + " " + other))


BESIDE = re.compile(r"[*?][*?](?!\])")
"""Signs one after the other, of which `covers` does not find out everything."""
