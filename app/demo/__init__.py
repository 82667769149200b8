"""The demo, which plays recordings.

Start with `demo_command`. `recording` has what a recording is, `recorded_table` how many events are
kept in few bytes. Imports every folder that the demo shows.
"""
