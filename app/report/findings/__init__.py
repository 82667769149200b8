"""The findings of a warehouse as sentences and a small table, from the committed tables alone.

A module for each job; `printed` writes them on a terminal. Start with `throttling`.
"""
