"""Tests of the polled Pulsar feed."""
