"""What must hold of the table of the job."""

from __future__ import annotations

from app.show.audit.checks import AuditCheck, between, not_null, suite, window_checks

SUITES: dict[str, list[AuditCheck]] = {
    "topic_message_counts": suite(
        "topic_message_counts",
        *not_null("topic", "messages", "bytes"),
        between("messages", 1),
        between("bytes", 0),
        *window_checks("cluster", "topic"),
    ),
}
ACROSS: dict[str, list[AuditCheck]] = {}
