"""Input and output that commands share: the notation of times, durations and sizes, rows as tables,
JSON and CSV, the log of a service, and Ctrl-C. Start with `moments`. Imports `app.errors` only.
"""
