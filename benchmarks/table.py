"""The result files as the tables of docs/benchmarks.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.result import FOLDER

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def rewrite(names: list[str]) -> None:
    """Put the results of these benchmarks into the document, in this order."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    found = [json.loads(p.read_text()) for n in names if (p := FOLDER / f"{n}.json").exists()]
    tables = "\n\n".join(_section(result) for result in found)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}")


def _section(result: dict[str, Any]) -> str:
    machine = result["machine"]
    lines = [
        f"### {result['name']}",
        "",
        f"{machine['date']}, {result['events']:,} events, {machine['cores']} cores of "
        f"{machine['cpu']}, load {machine['load_before'][0]} before and "
        f"{machine['load_after'][0]} after.",
        "",
        "| figure | value | least to most |",
        "| --- | ---: | ---: |",
    ]
    for figure in result["figures"]:
        spread = " to ".join(_number(v) for v in figure.get("spread", []))
        lines.append(
            f"| {figure['name']} | {_number(figure['value'])} {figure['unit']} | {spread} |"
        )
    if result["ratios"]:
        lines += ["", "| ratio | value | aim |", "| --- | ---: | ---: |"]
        for ratio in result["ratios"]:
            aim = "" if ratio["target"] is None else f"{ratio['target']:g}"
            lines.append(f"| {ratio['name']} | {ratio['value']:.2f} | {aim} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:g}"
