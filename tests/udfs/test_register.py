"""The column functions in Spark's SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mmh3

from udfs.register import FUNCTIONS, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_registered_functions_answer_in_sql(spark: SparkSession) -> None:
    assert register(spark) == tuple(FUNCTIONS)
    rows = spark.sql(
        """
        select weir_hash64(t), weir_shard(t, 16), weir_topic(t), weir_topic_tenant(t),
               weir_topic_namespace(t), weir_topic_name(t), weir_topic_partition(t),
               weir_position_ledger(p), weir_position_entry(p)
        from values ('acme/orders/created-partition-3', '9007199254740993:-1'), (null, null),
                    ('orders', 'x') as rows(t, p)
        """
    ).collect()
    name = "acme/orders/created-partition-3"
    hashes = [mmh3.hash64(text, 0)[0] for text in (name, "orders")]
    assert [tuple(row) for row in rows] == [
        (hashes[0], hashes[0] % 16, f"persistent://{name}", "acme", "acme/orders", "created", 3,
         9007199254740993, -1),
        (None,) * 9,
        (hashes[1], hashes[1] % 16, "persistent://orders", *(None,) * 6),
    ]
