"""What a job that assembles payloads gives its runner besides its tables."""

from __future__ import annotations

RELEASES = "chunk_payload_releases"
"""Table of the staged files whose payloads are no longer needed."""
PARTS = ("part_file", "part_row", "part_payload")
"""Columns of rows that wait for their payload: the places of its parts."""
