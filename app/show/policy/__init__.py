"""The command `policy`: checks, shows, compares and exports policies, without Spark.

Start with `policy_command`. `resolve` finds the limits of a topic, principal or client and the documents
that set them, `overridden` finds documents without effect, `policy_changes_text` compares two sets of
documents, `limits_in_force` are those of a warehouse, and `export` writes documents for the tools that
apply limits. Imports `app.read` and `app.config`.
"""

from app.show.policy.policy_changes_text import changes
from app.show.policy.policy_command import check, diff, show, sides, valid

__all__ = ["changes", "check", "diff", "show", "sides", "valid"]
