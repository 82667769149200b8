"""The Delta tables: what they are, how they are written, and what a warehouse remembers.

Start with `definitions`, which lists every table, then `commit`, which appends exactly once, and
`gathering`. `checkpoints`, `manifest` and `formats` are what a warehouse keeps beside its tables;
`inventory` knows all of it. Imports `app.jobs`, `app.config` and `app.terminal`.
"""
