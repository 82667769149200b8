"""The command `policy suggest client-quotas`: the limits that users and clients of Kafka need.

    client_quota_stats, client_usage ─► client_history (windows of each entity) ─► documents

Start with `client_limits`.
"""
