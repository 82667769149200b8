"""A seeded generator of broker events: a believable fleet, named incidents, planted mistakes.

Start with `trace`; `scenario` reads what to generate, `write` writes files or sends to Kafka.
Imports `app.config`.
"""
