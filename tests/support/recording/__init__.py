"""Records a run of a real broker: `python -m tests.support.recording` (see `configs/recordings`)."""
