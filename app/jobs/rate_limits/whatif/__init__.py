"""The command `policy suggest publish`: searches the archive for the smallest sufficient publish
limits.

    events ─► history (records of each limiter) ─► search (the core's buckets) ─► documents

Start with `command`; `verify` replays the archive under the limits that were found.
"""
