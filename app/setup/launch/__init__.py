"""Starts a command: in this process, or under Spark's `spark-submit`.

`start` is where to start reading. `spark-submit.sh` runs it with the Python of the environment that
the script has built, the installed command `weir` (`installed`) with its own. Standard library
only, so that a mistake on the command line is reported before there is an environment.
"""
