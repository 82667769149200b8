"""Who owns a topic or a user: the rules of the configuration, as SQL of questions."""

from __future__ import annotations

from app.read.relations import OWNERS

# The first rule that fits owns a topic. A user of Kafka has no topic.
OWNED = f"""
SELECT n.cluster, n.topic, n.user_name,
  arg_min(struct_pack(team := o.team, contact := o.contact, cost_centre := o.cost_centre), o.place)
    AS owner
FROM (SELECT DISTINCT cluster, topic, user_name FROM names) AS n JOIN {OWNERS} AS o
  ON (o.cluster IS NULL OR n.cluster GLOB o.cluster)
  AND (o.tenant IS NULL OR weir_topic_tenant(n.topic) GLOB o.tenant)
  AND (o.namespace IS NULL OR weir_topic_namespace(n.topic) GLOB o.namespace)
  AND (o.topic IS NULL OR regexp_replace(regexp_replace(n.topic, '^[a-z-]+://', ''),
    '-partition-[0-9]+$', '') GLOB o.topic)
  AND (o.principal IS NULL OR n.user_name GLOB o.principal)
GROUP BY n.cluster, n.topic, n.user_name
""".strip()
"""The owners of the rows of `names`: cluster, topic, user_name."""
