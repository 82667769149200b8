import os

# Numba reads its environment once, so before its first import (see udfs/compiled_cache.py).
os.environ.setdefault(
    "NUMBA_CACHE_LOCATOR_CLASSES",
    "udfs.compiled_cache.BySources,UserProvidedCacheLocator,InTreeCacheLocator,"
    "UserWideCacheLocator,ZipCacheLocator",
)
