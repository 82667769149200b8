"""The command `explain`: the decisions around one moment as sentences, without Spark.

Start with `explain_command`; `nearby_rows` reads the rows near the moment, the subjects that the
jobs declare turn them into sentences. Imports `app.jobs`, `app.read` and `app.config`.
"""

from app.show.explain.explain_command import explain

__all__ = ["explain"]
