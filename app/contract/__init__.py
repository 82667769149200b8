"""From a raw record to a valid one: the kinds and columns of the event contract, and its rules.

Start with `event_contract`, which turns records into columns and verdicts; the columns and kinds
themselves are in `state.events`, policy documents in `state.policies`. `parsing` turns lines into a
block of columns, `rules` is the table of the rules, `validation` applies it to a block, `reasons`
tells the details of refused records. `redaction` shortens what goes to quarantine. Runs in Spark's
Python workers. Imports `app.errors`.
"""
