"""Pollers query the admin interfaces of Pulsar and Kafka and write contract events into a spool
folder.

`polling` is the base of the pollers, `spool` keeps the folder, `pulsar` and `kafka` query. Imports
`app.config`.
"""
