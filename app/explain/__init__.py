"""The command `explain`: the decisions around one moment as sentences, without Spark.

Start with `command`; `reader` reads the rows near the moment, one module for each subject turns
them into sentences. Imports `app.warehouse` and `app.config`.
"""

from app.explain.command import explain

__all__ = ["explain"]
