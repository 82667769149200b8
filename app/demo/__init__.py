"""The demo, the generator of traces, and recordings.

Start with `demo_command`. `generator` makes the events of a scenario, `recording` replays what a real
broker wrote, `demo_source` gives a run the records of either. Imports every folder that the demo
shows.
"""
