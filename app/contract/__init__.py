"""From a raw record to a valid one: the kinds and columns of the event contract, and its rules.

Start with `event_contract`: `parsing` turns lines into a block of columns, `validation` checks the
block by the table `rules`, `reasons` says why a record is refused. `redaction` shortens what goes to
quarantine. Runs in Spark's Python workers. Imports `app.errors`; the columns themselves are in
`state.events`.
"""
