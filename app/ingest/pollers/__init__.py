"""Pollers ask the admin interfaces of Pulsar and Kafka and write contract events into a spool
folder.

`spool` keeps the folder, `pulsar` and `kafka` ask. Imports `app.config`.
"""
