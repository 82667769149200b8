"""Before and around a run: the demo, checks of a configuration and of the machine, packaging.

`demo`, `validate`, `connect` (the checks of `validate --connect`), `doctor`; `package` and `warm`
serve `launch`, which starts every command. `doctor` is where to start reading. May import every
room.
"""
