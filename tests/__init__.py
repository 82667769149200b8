"""Tests: a package, so that tests/state does not hide the package state."""
