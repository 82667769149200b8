"""From a source to packed records: sources and pollers, the event contract, validation, routing.

Start with `contract`. A record comes from a module of `sources` (`pollers` poll interfaces that
have no stream), becomes a row of a block of columns in `parsing`, is checked against the contract
in `validation`, and is packed for the shards of its jobs in `routing`. Most of this runs in Spark's
Python workers. Imports `app.config`, `app.demo.generator` (for the demo source) and the
tables of `app.read`.
"""
