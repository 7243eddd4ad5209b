"""How the training thread is fetched where it comes to no leave point."""

import signal
import sys
import threading
import time

import pytest

from elasticd.train.interrupt import Interrupted
from tests.unit.train.session.session_bench import PATIENCE_S, Bench, bench, enter

__all__ = ["bench"]


def test_training_thread_is_fetched_from_a_sleep(bench: Bench) -> None:
    """It comes to no leave point; the exception goes through the script's own frames."""
    bench.begin()
    seen = []

    def train() -> None:
        try:
            threading.Timer(0.05, bench.wire.tell, [enter(2)]).start()
            time.sleep(PATIENCE_S * 10)
        finally:
            seen.append("cleaned up")

    with pytest.raises(Interrupted):
        bench.session.call(train)
    assert seen == ["cleaned up"]


def test_training_thread_that_swallows_it_is_fetched_again(bench: Bench) -> None:
    bench.begin()
    caught = 0

    def train() -> None:
        nonlocal caught
        bench.hears(enter(2))
        while caught < 2:
            try:
                while True:
                    time.sleep(0.001)
            except BaseException:
                caught += 1
        while True:
            time.sleep(0.001)

    with pytest.raises(Interrupted):
        bench.session.call(train)
    assert caught == 2


def test_training_thread_is_not_fetched_out_of_a_commit(bench: Bench) -> None:
    """Between an optimizer's first touch and the commit the script may take its time."""
    bench.begin()
    was_left = []

    def train() -> None:
        bench.state.is_dirty = True
        bench.hears(enter(2))
        bench.group.aborted.wait(PATIENCE_S)
        try:
            time.sleep(1.0)  # Longer than the alarm waits, so that it has rung in vain.
        except Interrupted:
            was_left.append("dirty")
        bench.state.is_dirty = False
        time.sleep(PATIENCE_S)

    with pytest.raises(Interrupted):
        bench.session.call(train)
    assert not was_left


def test_planned_change_gets_hold_of_a_rank_that_waits_for_those_that_left(bench: Bench) -> None:
    """It is in a collective after the last step, which nobody else does."""
    bench.group.others = None
    bench.begin(step=3)
    bench.hears(enter(2, at_step=4))
    bench.session.step = 4  # Its commit, from where it went on before the others' word failed.

    def train() -> None:
        assert bench.group.aborted.wait(PATIENCE_S)
        raise RuntimeError("Connection closed by peer")

    with pytest.raises((RuntimeError, Interrupted)):
        bench.session.call(train)
    assert bench.session.is_stale(1)


def test_alarm_raises_nowhere_but_in_the_function(bench: Bench) -> None:
    """A signal that lands before, after or beside it does nothing."""
    bench.begin()
    alarm = bench.session._interrupt
    assert alarm is not None
    bench.hears(enter(2))
    signal.pthread_kill(threading.get_ident(), alarm._number)
    time.sleep(0.01)
    with pytest.raises(Interrupted):
        bench.session.call(lambda: signal.pthread_kill(threading.get_ident(), alarm._number))
    signal.pthread_kill(threading.get_ident(), alarm._number)
    time.sleep(0.01)


def test_alarm_never_hits_our_own_code() -> None:
    """A storm of rings over many short calls: each ends in the function, by return or by raise."""
    bench = Bench()
    try:
        bench.begin()
        bench.hears(enter(2))
        alarm = bench.session._interrupt
        assert alarm is not None
        number, main = alarm._number, threading.get_ident()
        is_over = threading.Event()

        def storm() -> None:
            while not is_over.is_set():
                signal.pthread_kill(main, number)
                time.sleep(0.0002)

        def work() -> None:
            for _ in range(300):
                pass

        thread = threading.Thread(target=storm)
        thread.start()
        raised = calls = 0
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        deadline_s = time.monotonic() + PATIENCE_S
        try:
            while raised < 100 and time.monotonic() < deadline_s:
                calls += 1
                try:
                    bench.session.call(work)
                except Interrupted:
                    raised += 1
        finally:
            is_over.set()
            thread.join()
            sys.setswitchinterval(interval_s)
        assert raised == 100 < calls
    finally:
        bench.session.close()
