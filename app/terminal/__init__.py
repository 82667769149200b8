"""Input and output that commands share: the notation of times, durations and sizes,
the log of a service, and Ctrl-C. Start with `moments`. Imports `app.errors` only.
"""
