"""Questions of the job: limits and their victims, and who is to blame."""

from __future__ import annotations

from app.jobs.rate_limits.questions import blame, blame_principals, limits

QUESTIONS = (*limits.QUESTIONS, *blame.QUESTIONS, *blame_principals.QUESTIONS)
