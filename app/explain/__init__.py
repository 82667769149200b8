"""The command `explain`: the chain of decisions behind one moment, in words, without Spark."""

from app.explain.command import explain

__all__ = ["explain"]
