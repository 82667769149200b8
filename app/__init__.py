import udfs  # noqa: F401  (how compiled functions are kept)
