"""What every folder has to know of the archive: its name and its tables. Python workers import it."""

ARCHIVE = "archive"
"""A member of a group of `queries`, as a job is, and the name of its checkpoint."""
COUNTS, GAPS, POLLS = "coverage_counts", "coverage_gaps", "coverage_polls"
WRITES = ("events", "quarantine", COUNTS, GAPS, POLLS)
"""Tables of the archive."""
