"""An owner that hangs is not kept alive by the thread of its keepalives."""

from queue import SimpleQueue
from threading import Event, Thread

import pytest

from elasticd_agent.loop.inbox import Inbox, Item
from elasticd_agent.loop.owner_watchdog import LIMIT_S, OwnerWatchdog
from tests.fixtures.patience import patience_s

WAIT_S = patience_s(30.0)


def test_lease_is_let_go_only_while_the_owner_stands_still() -> None:
    """It may go on in time: then nothing has happened."""
    busy_s = [0.0]
    standstill = OwnerWatchdog(lambda: busy_s[0])
    answers = []
    for busy_s[0] in (0.0, LIMIT_S - 1.0, LIMIT_S + 1.0, LIMIT_S + 9.0, 0.1):
        answers.append(standstill.may_renew())
    assert answers == [True, True, False, False, True]


def test_owner_is_busy_from_one_item_to_the_next() -> None:
    """While it waits for more it is not, however long that takes."""
    inbox, is_taken, may_go_on = Inbox(), Event(), Event()

    def serve() -> None:
        assert inbox.take(WAIT_S) is not None
        is_taken.set()
        assert may_go_on.wait(WAIT_S)
        assert inbox.take(WAIT_S) is not None
        inbox.take(WAIT_S)

    owner = Thread(target=serve)
    assert inbox.busy_s == 0.0
    owner.start()
    inbox.put(lambda: None)
    assert is_taken.wait(WAIT_S)
    first_s = inbox.busy_s
    while inbox.busy_s <= first_s:
        pass
    may_go_on.set()
    inbox.put(lambda: None)
    inbox.put(lambda: None)
    owner.join(WAIT_S)
    assert not owner.is_alive()


def test_owner_that_waits_for_more_is_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a quiet day nothing comes for minutes."""
    inbox, waiting = Inbox(), list[float]()

    class Quiet(SimpleQueue[Item]):
        def get(self, block: bool = True, timeout: float | None = None) -> Item:
            waiting.append(inbox.busy_s)
            return lambda: None

    monkeypatch.setattr(inbox, "_queue", Quiet())
    for _ in range(3):
        inbox.take(None)
        assert inbox.busy_s > 0.0
    assert waiting == [0.0] * 3
