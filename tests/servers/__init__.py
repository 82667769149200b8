"""Tests that start brokers, Prometheus, Alertmanager, a browser or an object store."""
