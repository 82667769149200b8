"""The command `policy`: checks, shows and compares policies, without Spark.

Start with `command`. `resolve` finds the limits of a topic or principal and the documents that set
them, `overridden` finds documents without effect, and `words` compares two sets of documents.
Imports `app.warehouse` and `app.config`.
"""

from app.policy.command import check, diff, show, valid
from app.policy.words import changes

__all__ = ["changes", "check", "diff", "show", "valid"]
