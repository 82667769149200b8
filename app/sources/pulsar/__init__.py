"""Sources of Pulsar: topics through its client, and polls of its admin interface."""
