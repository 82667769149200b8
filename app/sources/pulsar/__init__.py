"""Polls of Pulsar's admin interface, turned into records of the event contract."""
