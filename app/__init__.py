import udfs  # noqa: F401  (how compiled functions are kept)

__version__ = "0.2.0"
