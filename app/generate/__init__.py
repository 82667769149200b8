"""A seeded generator of broker events: a believable fleet, named incidents, planted mistakes."""
