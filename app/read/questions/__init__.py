"""Ready questions: `./spark-submit.sh query NAME`. Each is SQL over the tables, with parameters."""

from __future__ import annotations

from app.jobs import every
from app.read.question import Question
from app.read.questions import clusters, forecasts, shadows, showback, warehouse
from app.read.relations import OWNERS, STATES
from app.tables.definitions import TABLES, VIEWS

_ALL = (
    *clusters.QUESTIONS,
    *every("questions", "QUESTIONS"),
    *showback.QUESTIONS,
    *forecasts.QUESTIONS,
    *shadows.QUESTIONS,
    *warehouse.QUESTIONS,
)
QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in sorted(_ALL, key=lambda question: question.place)
    if set(question.reads) <= {*TABLES, *VIEWS, STATES, OWNERS}
}
"""Every question by its name, except those about tables that Weir does not write."""
