"""The rules of `rate_limits` once more: slow, in plain Python, written from the specification.

It knows nothing of the core: dictionaries and whole numbers, no arrays, no compiled code. Tests
compare the core with it row for row.
"""
