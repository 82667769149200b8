"""What other settings would have done: the jobs once more over the archive, in batch.

`replay` runs them; `producer_quota` and `dispatch_limit` look for a limit, `bakeoff` compares the
strategies of a cache. `replay` is where to start reading. Imports `app.stream` for the operators.
"""
