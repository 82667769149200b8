"""Replays of the archive in batch, under other settings.

Start with `replay.command`. `replay` runs the jobs over the archive into a warehouse of its own,
and `effect` compares two replays. `suggest` and `producer_quota` search for limits (the
command `policy suggest`). `bakeoff` compares eviction policies of a cache. Imports `app.stream` for
the operators and `app.report` for pages.
"""
