"""Before and around a run: the demo, checks of a configuration and of the machine, packaging.

`demo`, `validate`, `connect` (the checks of `validate --connect`), `doctor`; `package` and `warm`
serve `spark-submit.sh`. `doctor` is where to start reading. May import every room.
"""
