"""What a benchmark answers: figures with their floors, written beside the machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import machine

FOLDER = Path(__file__).resolve().parent / "results"


@dataclass
class Figure:
    """One measured number."""

    name: str
    value: float
    unit: str = "events/s"
    spread: tuple[float, float] | None = None
    """Least and most of the repetitions that `value` is the middle of."""
    note: str = ""


@dataclass
class Ratio:
    """A figure over its floor, both measured in this run."""

    name: str
    figure: str
    floor: str
    value: float


@dataclass
class Result:
    """All that one benchmark found in one run."""

    name: str
    events: int
    small: bool
    figures: list[Figure] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    load_before: list[float] = field(default_factory=machine.load)

    def add(
        self,
        name: str,
        value: float,
        unit: str = "events/s",
        spread: tuple[float, float] | None = None,
        note: str = "",
    ) -> float:
        """Note a figure and print it; answers its value."""
        self.figures.append(Figure(name, value, unit, spread, note))
        between = f"  ({_text(spread[0])} to {_text(spread[1])})" if spread else ""
        print(f"  {name:58s} {_text(value):>12s} {unit}{between}", flush=True)
        return value

    def ratio(self, figure: str, floor: str) -> float:
        """Note one figure over another."""
        value = self.value(figure) / self.value(floor)
        name = f"{figure} / {floor}"
        self.ratios.append(Ratio(name, figure, floor, round(value, 3)))
        print(f"  {name:58s} {value:12.2f}", flush=True)
        return value

    def value(self, name: str) -> float:
        """The value of a figure that was noted."""
        return next(f.value for f in self.figures if f.name == name)

    def write(self, folder: Path = FOLDER) -> Path:
        """Write the result file of this benchmark over that of its last run."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        document: dict[str, Any] = {
            "name": self.name,
            "events": self.events,
            "small": self.small,
            "machine": {
                **machine.describe(),
                "load_before": self.load_before,
                "load_after": machine.load(),
            },
            "figures": [_plain(asdict(f)) for f in self.figures],
            "ratios": [asdict(r) for r in self.ratios],
        }
        path.write_text(json.dumps(document, indent=1) + "\n")
        return path


def middle(values: Sequence[float]) -> tuple[float, tuple[float, float] | None]:
    """Median of repetitions, with the least and the most of several."""
    ordered = sorted(values)
    half = len(ordered) // 2
    value = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    return value, (ordered[0], ordered[-1]) if len(ordered) > 1 else None


def _plain(figure: dict[str, Any]) -> dict[str, Any]:
    def short(value: float) -> float:
        return round(value) if abs(value) >= 1000 else round(value, 3)

    figure["value"] = short(figure["value"])
    if figure["spread"]:
        figure["spread"] = [short(v) for v in figure["spread"]]
    return {key: value for key, value in figure.items() if value not in (None, "")}


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
