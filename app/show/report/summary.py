"""The first screen of a report: one sentence, the findings of the jobs, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from app.jobs import every
from app.show.report.model import JobFindings, ReportSection
from app.show.report.report_reader import ReportReader


def all_findings() -> list[JobFindings]:
    """The findings that the jobs declare, in their order."""
    return sorted(every("findings", "FINDINGS"), key=attrgetter("place"))


def what_happened(reader: ReportReader) -> ReportSection:
    """The findings of all jobs, as the demo prints them."""
    sentences = [text for found in all_findings() for text in found.sentences(reader)]
    return ReportSection(
        "what-happened", "What happened", sentences or ["No job has findings in this time."]
    )


def verdict(reader: ReportReader, sections: Sequence[ReportSection]) -> str:
    """One sentence about the whole, of the clauses of sections."""
    if reader.span is None:
        return "There is no data yet: no job has completed a window."
    clauses = [section.verdict for section in sections if section.verdict]
    if not clauses:
        return "No quota was breached, and no topic was paused for the limits of others."
    text = clauses[0] if len(clauses) == 1 else f"{', '.join(clauses[:-1])} and {clauses[-1]}"
    return f"{text[0].upper()}{text[1:]}."
