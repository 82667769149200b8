"""What the job tells of principals, and of clients of Kafka."""

from __future__ import annotations

from app.jobs.client_quotas.explain import limits, requests
from app.jobs.client_quotas.explain.limits import DECISIONS, STATS, USAGE
from app.show.explain.ask import OF_USER, USER, Explained, Subject

_OF_CLIENT = f"{OF_USER} AND ($client_id IS NULL OR t.client_id = $client_id)"
_ENTITY_OF_CLIENT = (
    "CASE WHEN $client_id IS NULL THEN list_contains($names, t.user)"
    " ELSE t.client IN ('', $client_id) AND (list_contains($names, t.user) OR t.user = '') END"
)
EXPLAINED = Explained(
    place=55,
    subjects=(
        Subject(85, ("principal",), requests.sentences),
        Subject(86, ("principal",), requests.windows),
        Subject(85, ("client",), limits.sentences),
    ),
    decisions={"principal": {DECISIONS: OF_USER}, "client": {DECISIONS: _OF_CLIENT}},
    levels={
        "principal": {STATS: "list_contains($names, t.user)", USAGE: OF_USER},
        "client": {STATS: _ENTITY_OF_CLIENT, USAGE: _OF_CLIENT},
    },
    named_by={USAGE: (USER, "true")},
)
