"""The parameters of the job `message_counts`."""

from __future__ import annotations

from typing import Annotated, Literal

from state.engine.parameters import SWITCH, Parameters


class MessageCountsParameters(Parameters):
    """Its section of the configuration; the length of a window is `stats_window_ms`."""

    count: Annotated[Literal["messages", "entries"], SWITCH] = "messages"
