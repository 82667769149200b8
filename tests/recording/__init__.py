"""Records a run of a real broker: `python -m tests.recording` (see `configs/recordings`)."""
