"""A job that is not among those of this version: added to a copy of the sources, and run."""
