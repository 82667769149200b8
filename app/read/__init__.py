"""Reading a warehouse without Spark: DuckDB over the Delta tables, as of any time.

Start with `relations`, which opens a warehouse. `pruning` finds the files that a statement needs,
`query` is the command, `question` and `questions` are the ready questions of no job. Imports
`app.tables`, `app.config` and `app.terminal`.
"""
