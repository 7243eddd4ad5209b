"""The thread that talks to etcd for the owner."""

from queue import Queue

from elasticd_agent.loop.effect_thread import EffectThread
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
