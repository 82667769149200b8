"""Sources of files and tables: JSON lines, and a Delta table."""
