"""The product does not grow unsaid: budget.yaml bounds the statements of each room."""

from __future__ import annotations

from collections import Counter

import pytest

from tests import budget


@pytest.fixture(scope="module")
def rooms() -> Counter[str]:
    return budget.rooms()


def test_each_room_is_within_its_bound(rooms: Counter[str]) -> None:
    bounds = budget.bounds()
    assert {name: n for name, n in rooms.items() if n > bounds.get(name, 0)} == {}


def test_no_function_is_longer_than_it_may_be() -> None:
    may, lines = budget.allowed(), budget.long_functions()
    assert {name: n for name, n in lines.items() if n > may.get(name, budget.LONGEST)} == {}
    assert may.keys() <= lines.keys(), "a bound that no function needs any more"


def test_each_bound_is_of_a_room(rooms: Counter[str]) -> None:
    assert set(budget.bounds()) - set(rooms) == set()


def test_a_docstring_and_a_comment_are_no_statement() -> None:
    source = (
        '"""Module."""\n\n\n# why\ndef f(x):\n    """Doc."""\n    if x: return 1\n    return 2\n'
    )
    assert budget.statements(source) == 4


def test_rooms_are_two_deep_and_jobs_three() -> None:
    paths = ("app/cli.py", "app/run/loop.py", "app/run/maintenance/a.py", "state/jobs.py")
    paths += ("app/jobs/__init__.py", "app/jobs/chunks/views.py")
    assert [budget.room(tuple(path.split("/"))) for path in paths] == (
        ["app", "app/run", "app/run", "state", "app/jobs", "app/jobs/chunks"]
    )
