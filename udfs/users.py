"""Users: the names in principals such as `User:alice`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def user_of(principals: pa.Array) -> pa.Array:
    """What follows the first colon of each principal, all of it without one; null for null."""
    return pc.replace_substring_regex(principals, r"\A[^:]*:", "", max_replacements=1)
