"""Messages between processes that may come from two versions of elasticd."""

import json

import pytest

from elasticd.channel import wire
from elasticd.channel.worker import Formed, Leave, unpack_from_worker, unpack_to_worker
from elasticd.errors import InvariantBroken
from elasticd.records.ids import Generation

FORMED = Formed(generation=Generation(3), step=17, phases_s={"abort": 0.5})


def changed(message: object, **fields: object) -> bytes:
    """The message's line with other fields; `...` leaves one out."""
    name, plain = json.loads(wire.pack(message))
    plain.update(fields)
    return json.dumps([name, {k: v for k, v in plain.items() if v is not ...}]).encode()


def test_field_that_a_newer_version_added_is_passed_over() -> None:
    """A job's own environment may have another elasticd than the agent's."""
    assert unpack_from_worker(changed(FORMED, colour={"of": ["tomorrow"]})) == FORMED


def test_field_that_an_older_version_does_not_send_has_its_default() -> None:
    """Only what has a default may have been added."""
    before = Formed(generation=Generation(3), step=17)
    assert unpack_from_worker(changed(FORMED, phases_s=..., source=...)) == before
    assert unpack_to_worker(changed(Leave(save_within_s=2.0), save_within_s=...)) == Leave()
    with pytest.raises(InvariantBroken, match="does not fit"):
        unpack_from_worker(changed(FORMED, step=...))


@pytest.mark.parametrize(
    "line",
    [b'["OfTomorrow",{}]\n', b'["Leave",{}]\n', b"[]\n", b"\xff\n", changed(FORMED, step="far")],
    ids=["a kind of tomorrow", "the other way", "empty", "no text", "another type"],
)
def test_what_is_no_message_of_this_way_is_refused_in_a_sentence(line: bytes) -> None:
    """What an unknown kind asks for cannot be guessed, so the connection ends."""
    with pytest.raises(InvariantBroken, match="on a process's channel does not fit"):
        unpack_from_worker(line)
