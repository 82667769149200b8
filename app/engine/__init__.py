"""Spark's half of a job: the queries, and what happens to a record between source and table.

Start with `govern`, the stateful query of a group of jobs. Workers pack valid records for the shards
(`routing`), a task has its core judge them (`step`), the driver commits the rows. `messages` is what
they tell each other; `archive_query` writes `events` and `quarantine`; `assignment` decides which jobs
share a query. Imports `app.sources`, `app.contract` and `app.tables`.
"""
