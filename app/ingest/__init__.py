"""From a source to packed records: sources and pollers, the event contract, validation, routing.

A record comes in through `sources` (`pollers` poll what has no stream), becomes a row
of a block of columns in `parsing`, is checked against the contract in `validation`, and is packed
for the shards of its jobs in `routing`. `contract` is where to start reading. Most of it runs in
Python workers of Spark. Imports `app.config`, `app.background`, `app.generate` (for the demo
source) and the tables of `app.warehouse`.
"""
