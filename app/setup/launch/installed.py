"""The package `weir` of an installation: the command of that name; puts Weir's code on the path.

It is `weir/__init__.py` there, beside the folders of the code, so `import weir` makes `udfs` and
`state` importable.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.read.arrow_answers import OpenWarehouse

sys.path.insert(0, str(Path(__file__).resolve().parent))


def open(warehouse: str, **storage_options: str) -> OpenWarehouse:
    """A warehouse to ask from Python: `weir.open("weir-warehouse").query("lag").to_pandas()`.

    A folder, or an object store with the options that a configuration has; UserError without one.
    """
    from app.read.arrow_answers import OpenWarehouse

    return OpenWarehouse(warehouse, storage_options)


def main() -> int:
    """Run the command line of this process."""
    from app.setup.launch.home import Home
    from app.setup.launch.start import main as start

    return start(sys.argv[1:], Home.of_this_python())
