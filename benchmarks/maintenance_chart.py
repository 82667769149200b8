"""Draws docs/images/maintenance.svg from the result file of the benchmark `maintenance`.

python -m benchmarks.maintenance_chart
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import altair as alt

from benchmarks.result import FOLDER

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "maintenance.svg"
_NAME = re.compile(r"(with\w*) maintenance, (\d+) commits: (.+)")
SHOWN = {
    "files": "files",
    "log": "log (MB)",
    "commit": "commit (s)",
    "query top-offenders": "query top-offenders (s)",
    "metrics --once": "metrics --once (s)",
    "alerts check": "alerts check (s)",
}


def points(result: dict[str, Any]) -> list[dict[str, Any]]:
    """A point per figure of a series."""
    found = []
    for figure in result["figures"]:
        match = _NAME.fullmatch(figure["name"])
        if match and match[3] in SHOWN:
            found.append(
                {
                    "maintenance": match[1],
                    "commits": int(match[2]),
                    "what": SHOWN[match[3]],
                    "value": figure["value"],
                }
            )
    return found


def chart(result: dict[str, Any]) -> Any:
    """One small chart per measure, on scales of their own."""
    base = (
        alt.Chart(alt.Data(values=points(result)))
        .mark_line(point=True)
        .encode(
            x=alt.X("commits:Q", title="commits", axis=alt.Axis(tickCount=4)),
            y=alt.Y("value:Q", title=None),
            color=alt.Color(
                "maintenance:N",
                title="maintenance",
                scale=alt.Scale(domain=["with", "without"], range=["#0b7285", "#d9480f"]),
                legend=alt.Legend(orient="top"),
            ),
        )
        .properties(width=230, height=130)
    )
    return (
        base.facet(alt.Facet("what:N", title=None, sort=list(SHOWN.values())), columns=3)
        .resolve_scale(y="independent")
        .configure(background="white")
    )


def main() -> None:
    """Draw the picture."""
    import vl_convert

    result = json.loads((FOLDER / "maintenance.json").read_text())
    spec = chart(result).to_dict()
    PICTURE.write_text(str(vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])))


if __name__ == "__main__":
    main()
