"""The thread of a process that may lead: when it evaluates, and how it ends."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from elasticd.errors import Refused
from elasticd.leader import daemon as module
from elasticd.leader.daemon import Daemon
from elasticd.leader.election import Term
from elasticd.records.keys import Keys
from elasticd.store.api import KeyValue
from elasticd.store.memory import MemoryStore
from elasticd.telemetry import log
from tests.fixtures.patience import patience_s
from tests.fixtures.store import wait_until

KEYS = Keys()


class Counting:
    """An evaluation that counts."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        self.terms: list[Term] = []
        self.evaluations = 0
        self.closed = 0
        self.act = act
        self.after: Callable[[], None] = lambda: None
        self.again_s: float | None = None

    def begin(self, term: Term) -> "Counting":
        self.terms.append(term)
        return self

    def evaluate(self) -> float | None:
        self.evaluations += 1
        self.act()
        self.after()
        return self.again_s

    def close(self) -> None:
        self.closed += 1


@contextmanager
def running(store: MemoryStore, counting: Counting, period_s: float = 0.01) -> Iterator[Daemon]:
    daemon = Daemon(store, KEYS.autoscaler_election, counting.begin, period_s=period_s)
    thread = threading.Thread(target=daemon.run)
    thread.start()
    try:
        yield daemon
    finally:
        daemon.stop()
        thread.join(patience_s(20.0))
        assert not thread.is_alive()


def reads(store: MemoryStore) -> None:
    store.get(KEYS.root)


def waits(event: threading.Event) -> None:
    event.wait(patience_s(20.0))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)


def test_a_term_that_cannot_begin_is_tried_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No thread is left, say; without a pause it would log as fast as it can."""
    monkeypatch.setattr(module, "RETRY_S", 0.1)
    store, counting, tries = MemoryStore(), Counting(), list[float]()
    begin = counting.begin

    def failing(term: Term) -> Counting:
        tries.append(time.monotonic())
        if len(tries) < 4:
            raise RuntimeError("can't start new thread")
        return begin(term)

    monkeypatch.setattr(counting, "begin", failing)
    with running(store, counting):
        wait_until(lambda: counting.evaluations > 0)
    assert tries[3] - tries[0] >= 0.25


def test_the_leader_evaluates_and_the_other_takes_over_at_once() -> None:
    """Nobody evaluates who stands by; whoever ends gives the election back."""
    store = MemoryStore()
    first, second = Counting(), Counting()
    with running(store, first):
        wait_until(lambda: first.evaluations > 2)
        with running(store, second):
            before = first.evaluations
            wait_until(lambda: first.evaluations > before + 2)
            assert (second.evaluations, second.terms) == (0, [])
        assert second.closed == 0
    assert first.closed == 1 and store.get(KEYS.autoscaler_election) is None
    with running(store, second) as daemon:
        wait_until(lambda: second.evaluations > 0)
        assert daemon.leads
    assert not daemon.leads


def test_a_term_that_is_over_is_closed_before_the_next_one() -> None:
    """What was measured in it is not mixed with what the leader in between did."""
    store = MemoryStore()
    counting = Counting()
    with running(store, counting):
        wait_until(lambda: counting.evaluations > 0)
        store.expire(counting.terms[0].lease.id)
        wait_until(lambda: len(counting.terms) == 2)
        assert counting.closed == 1


def test_an_etcd_that_is_away_is_told_of_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """And that it is back; meanwhile nothing is evaluated with success."""
    store = MemoryStore()
    counting = Counting(lambda: reads(store))
    log.configure(is_json=True)
    with running(store, counting):
        wait_until(lambda: counting.evaluations > 0)
        store.go_away()
        before = counting.evaluations
        wait_until(lambda: counting.evaluations > before + 5)
        store.come_back()
        said: list[str] = []

        def is_told() -> bool:
            said.append(capfd.readouterr().err)
            return "etcd.back" in "".join(said)

        wait_until(is_told)
    told = "".join(said)
    assert told.count("etcd.lost") == 1 and told.count("etcd.back") == 1


def test_a_bug_ends_neither_the_daemon_nor_its_term() -> None:
    """The next evaluation may not meet it; jobs keep their size meanwhile."""
    store = MemoryStore()
    counting = Counting(lambda: divided(counting))
    with running(store, counting) as daemon:
        wait_until(lambda: counting.evaluations > 3)
        assert daemon.leads and len(counting.terms) == 1


def divided(counting: Counting) -> None:
    if counting.evaluations < 3:
        raise ZeroDivisionError


def test_a_leader_whose_lease_is_not_renewed_says_so(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does nothing from its deadline on, although it was told of no error."""
    log.configure(is_json=True)
    store = MemoryStore()
    counting = Counting()
    with running(store, counting) as daemon:
        wait_until(lambda: counting.evaluations > 0)
        monkeypatch.setattr(daemon._election, "_now_s", lambda: float("inf"))
        said: list[str] = []

        def is_told() -> bool:
            said.append(capfd.readouterr().err)
            return "does not renew the lease" in "".join(said)

        wait_until(is_told)
        before = counting.evaluations
        wait_until(lambda: not daemon.leads)
        assert counting.evaluations == before


def test_who_stands_by_says_who_leads(capfd: pytest.CaptureFixture[str]) -> None:
    """Once: whoever reads the log of a stand-by knows where to look."""
    log.configure(is_json=True)
    store = MemoryStore()
    first, second = Counting(), Counting()
    said: list[str] = []

    def is_told() -> bool:
        said.append(capfd.readouterr().err)
        return "leader.seen" in "".join(said)

    with running(store, first):
        wait_until(lambda: first.evaluations > 0)
        with running(store, second) as standing_by:
            wait_until(is_told)
            for _ in range(5):
                rounds = standing_by._round_s
                wait_until(lambda: standing_by._round_s > rounds)  # noqa: B023
    said.append(capfd.readouterr().err)
    assert "".join(said).count("leader.seen") == 1


def test_a_daemon_that_begins_without_etcd_waits_for_it() -> None:
    """It does not end: whoever started it would have to start it again and again."""
    store = MemoryStore()
    store.go_away()
    counting = Counting()
    with running(store, counting) as daemon:
        wait_until(lambda: daemon.trouble not in ("", module.UNASKED))
        assert counting.evaluations == 0 and daemon.is_alive()
        store.come_back()
        wait_until(lambda: counting.evaluations > 0)
        assert daemon.trouble == ""


def test_a_daemon_is_in_trouble_until_etcd_has_answered(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its probe is red until then; an etcd that answers at once is no news."""
    log.configure(is_json=True)
    counting = Counting()
    daemon = Daemon(MemoryStore(), KEYS.autoscaler_election, counting.begin)
    assert daemon.trouble == module.UNASKED
    counting.act = daemon.stop
    daemon.run()
    assert daemon.trouble == "" and counting.evaluations == 1
    assert "etcd." not in capfd.readouterr().err


def test_a_daemon_that_etcd_refuses_ends() -> None:
    """A wrong password does not become right, and whoever gave it is to see that."""
    daemon = Daemon(RefusingStore(), KEYS.autoscaler_election, Counting().begin)
    with pytest.raises(Refused, match="the password"):
        daemon.run()


class RefusingStore(MemoryStore):
    """An etcd that does not know who asks."""

    def get(self, key: str) -> KeyValue | None:
        raise Refused("etcd refused the password of user 'a': correct either.")


def test_a_leader_that_hangs_lets_its_lease_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stands by leads then, although this process lives on."""
    monkeypatch.setattr(module, "HUNG_LEAST_S", 0.05)
    store = MemoryStore()
    is_going = threading.Event()
    hanging = Counting(lambda: waits(is_going))
    with running(store, hanging, period_s=0.01) as daemon:
        wait_until(lambda: hanging.evaluations == 1)
        renews = next(iter(store._grants.values())).may_renew
        wait_until(lambda: not renews())
        assert not daemon.is_alive()
        is_going.set()
        wait_until(renews)


def test_many_wakes_make_one_more_evaluation() -> None:
    """What comes while one evaluation runs is seen by the next one, and by no third."""
    store = MemoryStore()
    is_going = threading.Event()
    counting = Counting(lambda: waits(is_going))
    with running(store, counting, period_s=1000.0) as daemon:
        wait_until(lambda: counting.evaluations == 1)
        for _ in range(50):
            daemon.wake()
        is_going.set()
        wait_until(lambda: counting.evaluations == 2 and not daemon._is_woken)
        rounds = daemon._round_s
        wait_until(lambda: daemon._round_s > rounds)
        assert counting.evaluations == 2


def test_an_evaluation_says_when_it_wants_the_next_one() -> None:
    """Sooner than the period, which here never ends."""
    store = MemoryStore()
    counting = Counting()
    counting.again_s = 0.01
    with running(store, counting, period_s=1000.0):
        wait_until(lambda: counting.evaluations > 3)


def test_a_gap_lies_between_two_evaluations_however_often_it_is_woken() -> None:
    """The wake is not forgotten: the evaluation comes when the gap is over."""
    store = MemoryStore()
    ends: list[float] = []
    begins: list[float] = []
    counting = Counting(lambda: begins.append(time.monotonic()))
    daemon = Daemon(store, KEYS.autoscaler_election, counting.begin, period_s=1000.0, gap_s=0.05)
    counting.after = lambda: ends.append(time.monotonic())
    thread = threading.Thread(target=daemon.run)
    thread.start()
    try:
        wait_until(lambda: is_woken_and(daemon, counting.evaluations > 4))
    finally:
        daemon.stop()
        thread.join(patience_s(20.0))
    gaps = [begin - end for end, begin in zip(ends, begins[1:], strict=False)]
    assert len(gaps) >= 4 and min(gaps) >= 0.05


def is_woken_and(daemon: Daemon, is_enough: bool) -> bool:
    daemon.wake()
    return is_enough
