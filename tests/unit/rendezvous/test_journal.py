"""The log of an agent that replays."""

import json

import pytest

from elasticd.errors import NotSupported
from elasticd.records.ids import Generation, Nonce, Slot
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.decide import decide
from elasticd.rendezvous.journal import line, opening, replay
from elasticd.rendezvous.state import Past, replace
from tests.unit.rendezvous.cases import NOW_S, Told, failure, member, running, world

EVENTS: list[ev.Event] = [
    ev.SlotsGranted(slots=(Slot(0),)),
    ev.PoolChanged(is_ready=True),
    ev.StatusSeen(status=running(1), revision=5),
    ev.WorldSeen(world=world(1, 1, 0), revision=6),
    ev.MembersListed(revision=7, members=((member(0), 1, 1), (member(1), 2, 2)), watched=()),
    ev.WorkerStarted(slot=Slot(0), nonce=Nonce(1)),
    ev.WorkerFailed(slot=Slot(0), nonce=Nonce(1), failure=failure(0)),
    ev.Ticked(),
]


def journal() -> list[str]:
    state = Told(0).state
    lines = [opening(state)]
    for index, event in enumerate(EVENTS):
        now_s = NOW_S + index / 7
        state, effects = decide(state, event, now_s=now_s)
        lines.append(line(now_s, event, effects))
    return lines


def test_journal_replays_to_the_same_effects() -> None:
    """Through text and back, with nested records and times that are no round numbers."""
    assert replay(journal()) is None
    assert any("StartWorker" in text for text in journal())


def test_journal_tells_what_was_known_before() -> None:
    """A later incarnation decides by it too; older versions wrote the generation alone."""
    past = Past(generation=Generation(3), world=world(2, 0), ended_s=1005.0)
    state = replace(Told(0).state, past=past)
    text = opening(state)
    event = ev.StatusSeen(status=running(1), revision=5)
    _, effects = decide(state, event, now_s=NOW_S)
    assert replay([text, line(NOW_S, event, effects)]) is None
    assert '"generation":3' in text and '"ended_s":1005.0' in text
    old = json.loads(text)
    assert replay([json.dumps({**old, "past": 3}), line(NOW_S, event, effects)]) is None


def test_first_difference_is_named() -> None:
    """Line, event, what was recorded and what is decided now."""
    lines = journal()
    index = next(i for i, text in enumerate(lines) if "StartWorker" in text)
    lines[index] = lines[index].replace("StartWorker", "StopWorker")
    found = replay(lines)
    assert found is not None and found.startswith(f"line {index + 1}, ")


@pytest.mark.parametrize("lines", [["no json"], ["[]"], ['{"format":"other"}']])
def test_what_is_no_journal_is_refused(lines: list[str]) -> None:
    """In a plain sentence."""
    with pytest.raises(NotSupported, match="ine 1"):
        replay(lines)
