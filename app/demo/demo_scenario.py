"""The scenario of a demo: a generated trace, or a recording of a real broker."""

from __future__ import annotations

from dataclasses import dataclass

from app.demo import recording
from app.errors import UserError

GENERATED = "demo"
EVENTS = 300_000
SEED = 7


@dataclass(frozen=True)
class ChosenScenario:
    """A scenario, and the size and seed of one that is generated."""

    scenario: str = GENERATED
    events: int = EVENTS
    seed: int = SEED

    @property
    def recorded(self) -> bool:
        """Whether the events are a recording."""
        return self.scenario != GENERATED


def asked(scenario: str, events: int | None, seed: int | None) -> ChosenScenario:
    """The scenario; UserError for an unknown name and for an option that does not apply to it."""
    names = [GENERATED, *recording.names()]
    if scenario not in names:
        raise UserError(
            f"--scenario {scenario}: is not a scenario of demo\nallowed: {', '.join(names)}"
        )
    if scenario != GENERATED:
        for option, value in (("--events", events), ("--seed", seed)):
            if value is not None:
                raise UserError(
                    f"{option} {value}: the events of {scenario} are recorded\n"
                    f"leave {option} out, or take --scenario {GENERATED}"
                )
    return ChosenScenario(
        scenario, EVENTS if events is None else events, SEED if seed is None else seed
    )
