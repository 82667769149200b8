"""Questions of the job: limits and their victims, and who is to blame."""

from __future__ import annotations

from app.jobs.rate_limits.questions import limits
from app.jobs.rate_limits.questions.blame import NAMESPACE_PAIRS, PAIRS, TENANT_PAIRS
from app.jobs.rate_limits.questions.blame_principals import PRINCIPAL_PAIRS
from app.jobs.rate_limits.questions.paused_time import CULPRITS, NAMESPACES, TENANTS, VICTIMS
from app.read.question import grouped

QUESTIONS = (
    grouped(
        "blame",
        "Who was paused by publish limits, and because of whom: culprits, victims, sums by"
        " namespace or tenant, or pairs.",
        {
            "culprit": CULPRITS,
            "victim": VICTIMS,
            "pair": PAIRS,
            "namespace": NAMESPACES,
            "tenant": TENANTS,
            "namespace-pair": NAMESPACE_PAIRS,
            "tenant-pair": TENANT_PAIRS,
            "principal-pair": PRINCIPAL_PAIRS,
        },
    ),
    *limits.QUESTIONS,
)
