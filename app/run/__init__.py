"""The service: starts and watches the queries of `run`, and what works beside them.

Start with `service`, whose `Rounds` are the table of what a run looks at. `preflight` and `integrity`
refuse a run that cannot work, `session` is the only builder of Spark sessions, `side_processes` is the
table of what works beside the queries. `queries` starts them, `failures` classifies what ends one,
`restarts` starts it again, `draining` decides at the end what waits, `shutdown` ends all.
`maintenance` keeps the tables small.
Imports `app.engine`, the machinery of `app.show` and all below.
"""
