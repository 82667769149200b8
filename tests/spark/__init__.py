"""Tests that need Java: Spark in this process, in one session, or in processes of their own."""
