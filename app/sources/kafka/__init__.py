"""Polls of Kafka's consumer groups and logs, turned into records of the event contract."""
