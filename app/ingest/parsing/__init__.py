"""JSON lines to a block of columns: a compiled scanner for plain records, a decoder for the rest.

`parser` is where to start reading. Imports nothing of the other rooms.
"""
