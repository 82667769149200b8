"""Turns JSON lines into a block of columns: a compiled scanner for plain records, a decoder for
others.

Start with `parser`. Imports no other folder of `app`.
"""
