"""The queue between the feeders and the owner."""

from threading import Thread, get_ident

import pytest

from elasticd_agent.loop import inbox as module
from elasticd_agent.loop.inbox import Inbox
from tests.fixtures.patience import patience_s


def test_a_feeder_does_not_wait_for_ever_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold the lock of a watch that the owner closes at this moment."""
    monkeypatch.setattr(module, "LIMIT", 1)
    monkeypatch.setattr(module, "WAIT_S", 0.0)
    inbox = Inbox()
    done: list[str] = []

    def feed() -> None:
        for name in ("a", "b", "c"):
            inbox.put(lambda name=name: done.append(name))  # type: ignore[misc]

    feeder = Thread(target=feed)
    feeder.start()
    feeder.join(patience_s(30.0))
    assert not feeder.is_alive()
    while (item := inbox.take(0.0)) is not None:
        item()
    assert done == ["a", "b", "c"]


def test_question_is_answered_on_the_owners_thread_or_not_in_time() -> None:
    """Whoever scrapes an agent that stands still is not kept."""
    inbox = Inbox()
    assert inbox.ask(get_ident, 0.01) is None
    answers: list[int | None] = []
    asker = Thread(target=lambda: answers.append(inbox.ask(get_ident, 30.0)))
    asker.start()
    while not answers:
        if (item := inbox.take(0.01)) is not None:
            item()
    asker.join(patience_s(30.0))
    assert answers == [get_ident()]


def test_question_that_fails_ends_nobody_but_itself() -> None:
    """Metrics and progress are for people; the owner goes on."""
    inbox = Inbox()
    answers: list[object] = []

    def fail() -> int:
        raise KeyError("a bug")

    asker = Thread(target=lambda: answers.append(inbox.ask(fail, 30.0)))
    asker.start()
    while not answers:
        if (item := inbox.take(0.01)) is not None:
            item()
    asker.join(patience_s(30.0))
    assert answers == [None]
