"""Pollers: query the admin interfaces of Pulsar and Kafka and write events into a spool folder.

`polling` is the base of the pollers, `spool` manages the folder, `pulsar` and `kafka` query.
Imports `app.config`.
"""
