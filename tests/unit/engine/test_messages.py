"""Messages between packer, operator and committer: an address says what a row is."""

from __future__ import annotations

import pytest

from app.engine.messages import Message, MessageKind
from app.tables.definitions import TABLES
from state.jobs import JOBS


@pytest.mark.parametrize("kind", MessageKind)
@pytest.mark.parametrize("name", [*JOBS, *TABLES])
def test_an_address_gives_back_kind_and_name(kind: MessageKind, name: str) -> None:
    message = Message(kind, name, b"x")
    assert Message.of(message.address, b"x") == message


def test_notes_without_a_name_differ_from_each_other_and_from_data() -> None:
    notes = [Message(kind) for kind in MessageKind if kind is not MessageKind.DATA]
    assert len({note.address for note in notes} | {""}) == len(MessageKind)
    assert [Message.of(note.address) for note in notes] == notes
