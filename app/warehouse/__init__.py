"""The Delta tables: their definitions and views, commits to them, and reading them without Spark.

`tables` defines every table, `commit` appends exactly once, `relations` opens a warehouse for
DuckDB, `query` and `questions` read it. `tables` is where to start reading. Imports
`app.config` and `app.terminal`.
"""
