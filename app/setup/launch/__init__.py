"""Starts a command: in this process, or under Spark's `spark-submit`.

`start` is where to start reading. `spark-submit.sh` runs it with any Python 3.11 until there is an
environment, then with that of the environment; the installed command `weir` (`installed`) with its
own. The modules load with the standard library alone, so that a mistake on the command line is
reported before there is an environment.
"""
