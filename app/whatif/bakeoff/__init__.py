"""The command `bakeoff`: what every eviction strategy would have made of a trace, at every size."""
