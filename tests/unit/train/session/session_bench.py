"""A session between an agent, a group and a state that only write down what happens to them."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from elasticd.channel.worker import Enter, Formed, FromWorker, ToWorker
from elasticd.records.ids import Generation, Rank
from elasticd.records.member import StoreAddress
from elasticd.train.session.agent_session import AgentSession
from elasticd.train.session.step_session import EpochProgress
from tests.fixtures.patience import patience_s

__all__ = ["PATIENCE_S", "Bench", "bench", "enter", "formed"]

PATIENCE_S = patience_s(20.0)
"""Only a bound for a hang."""

M = TypeVar("M", bound=FromWorker)


def enter(generation: int, *, at_step: int | None = None, rank: int = 0, size: int = 2) -> Enter:
    return Enter(
        generation=Generation(generation),
        rank=Rank(rank),
        size=size,
        local_rank=rank,
        local_size=size,
        node_rank=0,
        nodes=1,
        node="a",
        store=StoreAddress(host="127.0.0.1", port=1),
        reason="start",
        at_step=at_step,
    )


def formed(generation: int, step: int = 0) -> Formed:
    return Formed(generation=Generation(generation), step=step, phases_s={"form": 0.5})


class FakeWire:
    """The agent's side in memory."""

    def __init__(self) -> None:
        self.said: list[FromWorker] = []
        self.handled: list[ToWorker] = []
        self._to_worker: queue.Queue[ToWorker | None] = queue.Queue()
        self._last: tuple[type[FromWorker], ...] = ()

    def send(self, message: FromWorker, *, is_news: bool = False) -> None:
        self.said.append(message)
        if isinstance(message, self._last):
            self.close()

    def messages(self) -> Iterator[ToWorker]:
        while (message := self._to_worker.get()) is not None:
            yield message
            self.handled.append(message)

    def close(self) -> None:
        self._to_worker.put(None)

    def tell(self, message: ToWorker) -> None:
        self._to_worker.put(message)

    def wait_for(self, kind: type[M], fits: Callable[[M], bool] = lambda _: True) -> M:
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            for message in self.said:
                if isinstance(message, kind) and fits(message):
                    return message
            time.sleep(0.005)
        raise AssertionError(f"no such {kind.__name__}: {self.said[-5:]}")

    def wait_handled(self, message: ToWorker) -> None:
        """Wait until the session has heard and done with what it was told."""
        deadline_s = time.monotonic() + PATIENCE_S
        while message not in self.handled:
            assert time.monotonic() < deadline_s, f"not handled: {message}"
            time.sleep(0.005)

    def end_after(self, kind: type[FromWorker]) -> None:
        """Be gone when such a message comes."""
        self._last = (kind,)

    def all_of(self, kind: type[M]) -> list[M]:
        return [message for message in self.said if isinstance(message, kind)]


class FakeGroup:
    def __init__(self) -> None:
        self.aborted = threading.Event()
        self.synchronized: list[bool] = []
        self.named: list[int] = []
        self.others: int | None = 0
        """The latest step that another rank names; None: it never says one."""
        self.has_results = False
        self.is_agreed = threading.Event()
        self.is_agreed.set()

    def abort(self) -> None:
        self.aborted.set()

    def sequence(self) -> int:
        return 18

    def arrived(self) -> int:
        return 17

    def is_in_collective(self) -> bool:
        return False

    def has_ended(self) -> bool:
        return False

    def has_all_results(self) -> bool:
        return self.has_results

    def last_step(self, least: int, is_over: Callable[[], bool]) -> int | None:
        self.named.append(least)
        self.is_agreed.wait(PATIENCE_S)
        return max(least, self.others) if self.others is not None else None

    def synchronize(self, is_current: Callable[[], bool], mark: object = None) -> bool:
        self.synchronized.append(is_current())
        return self.has_ended()


class FakeState:
    is_dirty = False

    @property
    def epoch_progress(self) -> EpochProgress:
        return EpochProgress(99, 1000, 3, steps=400)

    def scalars(self) -> dict[str, float]:
        return {"loss": 0.25}


class Bench:
    """A session that trains in generation 1, and all that it touches."""

    def __init__(self) -> None:
        self.wire = FakeWire()
        self.state = FakeState()
        self.group = FakeGroup()
        self.session = AgentSession(self.wire)
        self.session.attach(self.state, 4711)

    def begin(self, generation: int = 1, step: int = 0) -> None:
        self.wire.tell(enter(generation))
        assert self.session.next_world() == enter(generation)
        self.session.use(self.group)
        self.session.formed(formed(generation, step))

    def hears(self, message: ToWorker, generation: int = 1) -> None:
        self.wire.tell(message)
        assert self.session.wait_newer(generation, PATIENCE_S)

    def step(self, number: int) -> None:
        """What one step of a script calls."""
        self.session.delivered()
        self.session.synchronize()
        self.session.committed((number, 0))
        self.session.check(number)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.session.close()
