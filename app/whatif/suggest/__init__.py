"""The command `policy suggest publish`: the smallest publish limits that history allows.

    events ─► history (records of each limiter) ─► search (the core's buckets) ─► documents, page

`command` is where to start reading; `verify` replays the archive under what was found.
"""
