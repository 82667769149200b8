"""Tests of the command `bakeoff`."""
