"""The demo, the generator of traces, and recordings.

Start with `demo_command`. `generator` makes the events of a scenario, `recording` replays what a real
broker wrote. Imports every folder that the demo shows.
"""
