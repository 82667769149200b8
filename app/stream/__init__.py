"""The service: Spark queries that read a source, run the jobs and commit their tables.

Start reading at `run`, which starts and stops everything. `govern` is the stateful query of a group
of jobs, `archive` the query of the archive, and `session` the only builder of Spark sessions.
`assignment` and `operators` decide which jobs run in which query. `preflight` and `integrity`
refuse a run that cannot work. `progress` and `source_watch` report. The folder imports the folders
that a run uses; only `app.whatif` and `app.setup` import it.
"""
