"""Names of topics, as SQL."""

from __future__ import annotations

_ENDING = "concat('-partition-', \"partition\")"
TOPIC = f"""
concat(CASE WHEN NOT contains(topic, '://') AND NOT starts_with(source_feed, 'kafka')
    THEN 'persistent://' ELSE '' END,
  topic, CASE WHEN "partition" >= 0 AND NOT ends_with(topic, {_ENDING}) THEN {_ENDING} ELSE '' END)
""".strip()
"""The topic of a row of `events` in the spelling of the tables (`udfs.topics.normal_topic`). Feeds
differ: with or without the scheme, with the partition in its column or in the name."""
TENANT = "nullif(regexp_extract(topic, '^[a-z-]+://([^/]+)/', 1), '')"
"""The tenant of a row's `topic`; null for a topic of Kafka."""
NAMESPACE = TENANT.replace("([^/]+)", "([^/]+/[^/]+(?:/[^/]+)?)")
"""Its namespace; in names of four parts it has three: tenant, cluster and namespace."""
