"""The modules of the tree as nodes of their syntax."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path


def walked(text: str) -> tuple[ast.AST, ...]:
    """All nodes of a text, as `ast.walk` gives them."""
    # The collector would look at all of them again and again: ten times the work of parsing.
    was = gc.isenabled()
    gc.disable()
    try:
        return tuple(ast.walk(ast.parse(text)))
    finally:
        if was:
            gc.enable()


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Those of a module of the product, which a process of tests parses once; nothing changes them."""
    return walked(path.read_text("utf-8"))
