"""The command `explain`: the chain of decisions behind one moment, in words, without Spark.

Start with `command`; `reader` reads the rows near the moment, one module for each job turns them
into sentences. Imports `app.warehouse` and `app.config`.
"""

from app.explain.command import explain

__all__ = ["explain"]
