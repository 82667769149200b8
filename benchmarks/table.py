"""The result files as the tables of docs/benchmarks.md, beside what figures should be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.result import FOLDER

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
AIMS = Path(__file__).with_name("aims.yaml")


class Aim(NamedTuple):
    """What a figure or ratio should be."""

    is_least: bool
    bound: float

    def is_met(self, value: float) -> bool:
        """Whether a measured value is as it should be."""
        return value >= self.bound if self.is_least else value <= self.bound

    def __str__(self) -> str:
        return f"at {'least' if self.is_least else 'most'} {_number(self.bound)}"


def aims() -> dict[str, dict[str, Aim]]:
    """The aims of each result file, by the name of a figure or ratio."""
    found = yaml.safe_load(AIMS.read_text("utf-8"))
    return {
        name: {figure: _aim(text) for figure, text in aims.items()} for name, aims in found.items()
    }


def _aim(text: str) -> Aim:
    sign, _, bound = text.partition(" ")
    return Aim({">=": True, "<=": False}[sign], float(bound))


def with_results(text: str, names: Sequence[str]) -> str:
    """A text with the results of these benchmarks, in this order, and what they miss."""
    results = [json.loads(p.read_text()) for n in names if (p := FOLDER / f"{n}.json").exists()]
    wanted = aims()
    missed = [line for each in results for line in _missed(each, wanted.get(each["name"], {}))]
    head = ["| file | figure | value | aim |", "| --- | --- | ---: | ---: |"]
    tables = [_section(each, wanted.get(each["name"], {})) for each in results]
    for part, lines in (("missed", "\n".join([*head, *missed])), ("results", "\n\n".join(tables))):
        begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{lines}\n\n{end}{rest.partition(end)[2]}"
    return text


def _missed(result: dict[str, Any], wanted: dict[str, Aim]) -> Iterator[str]:
    for each in [*result["figures"], *result["ratios"]]:
        aim = wanted.get(each["name"])
        if aim and not aim.is_met(each["value"]):
            value = f"{_number(each['value'])} {each.get('unit', '')}".strip()
            yield f"| `{result['name']}` | {each['name']} | {value} | {aim} |"


def _section(result: dict[str, Any], wanted: dict[str, Aim]) -> str:
    machine = result["machine"]
    commit = f"commit {machine['commit']}, " if machine.get("commit") else ""
    lines = [
        f"### {result['name']}",
        "",
        f"{machine['date']}, {commit}{result['events']:,} events, {machine['cores']} cores of "
        f"{machine['cpu']}, load {machine['load_before'][0]} before and "
        f"{machine['load_after'][0]} after.",
        "",
        "| figure | value | least to most | aim |",
        "| --- | ---: | ---: | ---: |",
    ]
    for figure in result["figures"]:
        spread = " to ".join(_number(v) for v in figure.get("spread", []))
        lines.append(
            f"| {figure['name']} | {_number(figure['value'])} {figure['unit']} | {spread} | "
            f"{wanted.get(figure['name'], '')} |"
        )
    if result["ratios"]:
        lines += ["", "| ratio | value | aim |", "| --- | ---: | ---: |"]
        lines += [
            f"| {ratio['name']} | {ratio['value']:.2f} | {wanted.get(ratio['name'], '')} |"
            for ratio in result["ratios"]
        ]
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:g}"
