"""The service: Spark queries that read sources, run the jobs and commit their tables.

`run` starts and stops everything and is where to start reading; `govern` is the one stateful query
of a group of jobs, `archive` the query of the archive, `session` the only builder of Spark
sessions. The rest decides what runs (`assignment`, `operators`), refuses what cannot (`preflight`,
`integrity`) and reports (`progress`, `source_watch`). Imports every room that it runs, or runs
beside itself; only `app.whatif` and `app.setup` import it.
"""
