"""Replays of the archive in batch, under other settings.

`replay` runs them; `producer_quota` and `dispatch_limit` look for a limit, `bakeoff` compares the
strategies of a cache. `replay` is where to start reading. Imports `app.stream` for the operators.
"""
