"""Users: the names in principals such as `User:alice`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def user_of(principals: pa.Array) -> pa.Array:
    """The part of each principal after the first colon, all of it without one; null for null."""
    return pc.replace_substring_regex(principals, r"\A[^:]*:", "", max_replacements=1)
