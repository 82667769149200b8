"""Files that ship with Weir's code: of a checkout, or of the zip that Spark distributes."""

from __future__ import annotations

import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Place = Path | zipfile.Path


def shipped(folder: str, room: str = "configs") -> Place:
    """A folder below `configs`, or below another one of the code."""
    if ROOT.is_file():
        return zipfile.Path(ROOT, f"{room}/{folder}/")
    return ROOT / room / folder


def yaml_files(folder: Place) -> list[Place]:
    """The YAML files of a folder, by name."""
    found: list[Place] = [
        file for file in folder.iterdir() if file.name.endswith((".yaml", ".yml"))
    ]
    return sorted(found, key=lambda file: file.name)
