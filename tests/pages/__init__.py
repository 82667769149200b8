"""Generators of the reference pages in `docs/`: `python -m tests.pages` writes them.

Start with `pages`, which lists them; each other module renders one page from the definitions in
the code. Imports the rooms whose definitions it prints.
"""
