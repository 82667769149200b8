"""Memory that was freed stays with the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, threading
import numpy as np
from udfs.allocator import keep_freed_memory

def fill():
    for _ in range(20):
        batch = [np.full(1_000_000, 7, np.int8) for _ in range(24)]
        del batch

def faults(fill):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    fill()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def in_a_thread():
    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()

keep_freed_memory()
keep_freed_memory()
print(faults(fill), faults(in_a_thread))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than glibc's")
def test_pages_of_freed_arrays_are_not_cleared_again() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    ).stdout
    at_first, in_a_thread = map(int, printed.split())
    pages_of_a_batch = 24 * 1_000_000 // 4096
    assert at_first < 2 * pages_of_a_batch, "each of twenty batches had its pages cleared"
    assert in_a_thread < 2 * pages_of_a_batch
