"""The thread that talks to etcd for the owner."""

from queue import Queue
from threading import Thread

import pytest

from elasticd_agent.loop.effect_thread import EffectThread, later
from tests.fixtures.patience import patience_s

WAIT_S = patience_s(30.0)


def test_an_answer_that_raises_does_not_end_the_thread() -> None:
    """Nothing would be written any more by a node whose lease lives on."""
    effect_thread, answers = EffectThread(), Queue[str]()

    def breaks(answer: str) -> None:
        raise RuntimeError("can't start new thread")

    effect_thread.send(lambda: "first", breaks, lambda exc: None)
    effect_thread.send(lambda: "second", answers.put, lambda exc: None)
    assert answers.get(timeout=WAIT_S) == "second"
    effect_thread.close(WAIT_S)


def test_what_is_due_later_needs_no_new_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without a thread left would seek no lease any more, and look well."""
    effect_thread, calls = EffectThread(), Queue[str]()

    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)

    def breaks() -> None:
        raise ValueError("a bug of ours")

    later(1.0, lambda: calls.put("second"))
    later(0.0, breaks)
    later(0.01, lambda: calls.put("first"))
    assert [calls.get(timeout=WAIT_S) for _ in range(2)] == ["first", "second"]
    effect_thread.close(WAIT_S)
