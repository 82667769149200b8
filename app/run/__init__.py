"""The service: starts and watches the queries of `run`, and what works beside them.

Start with `service`. `preflight` and `integrity` refuse a run that cannot work, `session` is the only
builder of Spark sessions, `side_processes` is the table of what works beside the queries,
`failures` classifies what ends one, `shutdown` ends all. `maintenance` keeps the tables small.
Imports `app.engine`, the machinery of `app.show` and all below.
"""
