"""Messages between packer, operator and committer: an address says what a row is."""

from __future__ import annotations

import pytest

from app.ingest.messages import Kind, Message
from app.warehouse.tables import TABLES
from state.jobs import JOBS


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("name", [*JOBS, *TABLES])
def test_an_address_gives_back_kind_and_name(kind: Kind, name: str) -> None:
    message = Message(kind, name, b"x")
    assert Message.of(message.address, b"x") == message


def test_notes_without_a_name_differ_from_each_other_and_from_data() -> None:
    notes = [Message(kind) for kind in Kind if kind is not Kind.DATA]
    assert len({note.address for note in notes} | {""}) == len(Kind)
    assert [Message.of(note.address) for note in notes] == notes
