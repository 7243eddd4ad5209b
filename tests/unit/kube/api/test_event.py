"""What an event is called."""

import re

from elasticd.kube.api.event import MESSAGE_LIMIT, event_body, event_name
from elasticd.kube.api.port import EventNote, EventType

SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


def named(name: str) -> str:
    about = {"metadata": {"name": name, "namespace": "team", "uid": "u"}}
    note = EventNote(about=about, type=EventType.NORMAL, reason="R", message="It is so.")
    return event_name(note).name


def test_an_event_of_an_object_with_a_long_name_has_a_name_that_the_server_takes() -> None:
    """Wherever it is cut, and told from one whose name begins in the same way."""
    assert named("x").startswith("x.")
    for begin in range(200, 253):
        name = named(f"{'a' * begin}-{'b' * (252 - begin)}".rstrip("-"))
        assert len(name) <= 253 and re.fullmatch(SUBDOMAIN, name), name
    assert named("a" * 252 + "b") != named("a" * 252 + "c")


def test_an_event_may_say_what_a_script_has_raised() -> None:
    """An exception may hold half of a character, which no bytes of UTF-8 are."""
    about = {"metadata": {"name": "x", "namespace": "team", "uid": "u"}}
    for said in ("\ud83d", "\U0001f525" * 2000):
        note = EventNote(about=about, type=EventType.WARNING, reason="Failed", message=said)
        found = event_body(note, 1)
        assert 0 < len(found["message"].encode()) <= MESSAGE_LIMIT
        assert found["metadata"]["name"] == event_name(note).name
