"""Replays of the archive in batch, under other settings.

`replay` runs the jobs over it, into a warehouse of its own, and `effect` compares two replays;
`suggest`, `producer_quota` and `dispatch_limit` look for limits (the command `policy suggest`),
`bakeoff` compares the strategies of a cache. `replay.command` is where to start reading. Imports
`app.stream` for the operators and `app.report` for pages.
"""
