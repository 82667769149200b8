"""Ready questions: `./spark-submit.sh query NAME`. Each is SQL over the tables, with parameters."""

from __future__ import annotations

from app.warehouse.questions import (
    backlog,
    charges,
    chunks,
    entry_cache,
    forecasts,
    groups,
    principals,
    producer_ids,
    rate_limits,
    shadows,
    warehouse,
)
from app.warehouse.questions.question import Question
from app.warehouse.relations import OWNERS, STATES
from app.warehouse.tables import TABLES, VIEWS

_ALL = (
    *rate_limits.QUESTIONS,
    *chunks.QUESTIONS,
    *producer_ids.QUESTIONS,
    *backlog.QUESTIONS,
    *entry_cache.QUESTIONS,
    *charges.QUESTIONS,
    *principals.QUESTIONS,
    *forecasts.QUESTIONS,
    *groups.QUESTIONS,
    *shadows.QUESTIONS,
    *warehouse.QUESTIONS,
)
QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in _ALL
    if set(question.reads) <= {*TABLES, *VIEWS, STATES, OWNERS}
}
"""Every question by its name, except those about tables that Weir does not write."""
