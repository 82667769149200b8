"""A seeded generator of broker events: a believable fleet, named incidents, planted mistakes.

It makes traces of any size for benchmarks and tests (`generate_command`), and the recording that the
demo plays (`record`). Start with `trace`; `scenario` reads what to generate, `write` writes files.
"""
