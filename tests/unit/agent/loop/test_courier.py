"""The thread that talks to etcd for the owner."""

from queue import Queue

from elasticd_agent.loop.courier import Courier

WAIT_S = 30.0


def test_an_answer_that_raises_does_not_end_the_courier() -> None:
    """Nothing would be written any more by a node whose lease lives on."""
    courier, answers = Courier(), Queue[str]()

    def breaks(answer: str) -> None:
        raise RuntimeError("can't start new thread")

    courier.send(lambda: "first", breaks, lambda exc: None)
    courier.send(lambda: "second", answers.put, lambda exc: None)
    assert answers.get(timeout=WAIT_S) == "second"
    courier.close(WAIT_S)
