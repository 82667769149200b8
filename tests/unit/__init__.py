"""Tests without Java and without servers: what ./test.sh --quick runs."""
