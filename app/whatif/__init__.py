"""Replays of the archive in batch, under other settings.

`replay` runs the jobs over it, into a warehouse of its own, and `effect` compares two replays;
`producer_quota` and `dispatch_limit` look for a limit, `bakeoff` compares the strategies of a
cache. `replay.command` is where to start reading. Imports `app.stream` for the operators and
`app.report` for pages.
"""
