"""The Delta tables: definitions, views, commits, and reading them without Spark.

Start with `tables`, which defines every table. `commit` appends exactly once, `relations` opens a
warehouse for DuckDB, `query` and `questions` read it. Imports `app.config` and `app.terminal`.
"""
