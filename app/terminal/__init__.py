"""What commands share in talking with a person: times, durations and sizes as they are written,
the log of a service, and Ctrl-C. Start with `moments`. Imports `app.errors` only.
"""
