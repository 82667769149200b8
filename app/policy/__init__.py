"""The command `policy`: policies as code, checked, shown and compared, without Spark.

Start with `command`; `resolve` finds what holds for a topic or a principal and where it comes from,
`shadows` what never can, `words` compares two sets of documents. Imports `app.warehouse` and
`app.config`.
"""

from app.policy.command import check, diff, show, valid
from app.policy.words import changes

__all__ = ["changes", "check", "diff", "show", "valid"]
