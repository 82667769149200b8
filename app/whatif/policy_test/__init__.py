"""Policies tested against traffic in words: the command `policy test`, and `weir.testing`.

Start with `cases`; `event_lines` makes events of words, `play` runs the jobs over events in memory.
"""
