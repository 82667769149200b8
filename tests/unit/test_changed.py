"""Which test files run for a change."""

from __future__ import annotations

from pathlib import Path

from tests.changed import files_for

ROOT = Path(__file__).resolve().parents[2]


def test_a_core_is_tested_by_what_imports_it():
    found = files_for(["state/rate_limits/bucket.py"])
    assert "tests/unit/state/test_bucket_vectors.py" in found
    assert "tests/unit/terminal/test_moments.py" not in found


def test_a_test_and_what_tests_share():
    assert files_for(["tests/unit/test_changed.py"]) == ["tests/unit/test_changed.py"]
    assert "tests/unit/test_extreme_values.py" in files_for(["tests/support/throttle_rows.py"])


def test_a_file_of_data_counts_as_its_package():
    assert files_for(["app/terminal/words.txt"]) == files_for(["app/terminal/__init__.py"])
    assert files_for(["README.md"]) == []


def test_files_that_are_named_are_there():
    assert all((ROOT / file).exists() for file in files_for(["app/errors.py"]))
