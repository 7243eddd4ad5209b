"""What a commit's numbers become on their way to the writer."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from elasticd.tensorboard.histogram import LENGTH
from elasticd.tensorboard.sender import Sender
from elasticd.train.scalars import event_feed as module
from elasticd.train.scalars.commit_scalars import CommitScalars
from elasticd.train.scalars.event_feed import FETCH_EVERY_S, EventFeed
from tests.unit.train.device.gpu_case import FakeGpu, FakeStream


class Sent(Sender):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.begun: list[tuple[int, int, bool]] = []
        self.told: list[str] = []
        self.is_over = False

    def begin(self, generation: int, step: int, *, is_writer: bool) -> None:
        self.begun.append((generation, step, is_writer))

    def scalars(
        self, step: int, at_unix_s: float, names: tuple[str, ...], values: Sequence[float]
    ) -> None:
        self.sent.append((step, names, list(values)))

    def histograms(
        self, step: int, at_unix_s: float, names: tuple[str, ...], values: Sequence[float]
    ) -> None:
        self.sent.append((step, names, len(values)))

    def poll(self) -> list[str]:
        told, self.told = self.told, []
        return told

    def end(self) -> None:
        self.is_over = True


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def feed(sent: Sent, clock: Clock, said: list[str]) -> EventFeed:
    made = EventFeed(sent, clock=clock, wall_clock=clock, say=said.append)
    made.begin(2, 0, 10)
    return made


class Device:
    """Stands for a GPU: its copies arrive when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_done = False
        self.fetches = 0
        device = self

        class Arriving(module._Fetch):
            def __init__(self, steps: list[Any]) -> None:
                super().__init__(steps)
                device.fetches += 1

            def is_here(self) -> bool:
                return device.is_done

        monkeypatch.setattr(module, "_Fetch", Arriving)
        # A double of one: what is read on the device is a tensor still.
        monkeypatch.setattr(module, "_is_here", lambda tensor: False)


def test_numbers_and_tensors_are_sent_at_once(feed: EventFeed, sent: Sent) -> None:
    """As they were in the commit, whatever is written into them later."""
    loss = torch.tensor(0.5, dtype=torch.bfloat16)
    feed.commit(11, {"loss": loss, "lr": 0.25}, {})
    loss.fill_(9.0)
    assert sent.sent == []  # The training thread does no more than to read them.
    feed.poll()
    assert sent.begun == [(2, 10, True)]
    assert sent.sent == [(11, ("loss", "lr"), [0.5, 0.25])]


def test_numbers_on_a_device_are_fetched_together(
    feed: EventFeed, sent: Sent, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One copy for all steps of a fifth of a second; their order stays, and nobody waits."""
    device = Device(monkeypatch)
    loss = torch.zeros(())
    for step in range(1, 6):
        loss.fill_(step)  # As a captured graph does.
        feed.commit(step, {"loss": loss, "lr": 0.5}, {})
    feed.commit(6, {"lr": 0.5}, {})
    assert sent.sent == []
    assert device.fetches == 1  # Of the first, which came when none was under way.
    device.is_done = True
    clock.now_s += FETCH_EVERY_S
    feed.poll()
    assert [each[0] for each in sent.sent] == [1]
    feed.commit(7, {"loss": loss}, {})
    assert device.fetches == 2
    assert sent.sent == [
        *((step, ("loss", "lr"), [float(step), 0.5]) for step in range(1, 6)),
        (6, ("lr",), [0.5]),
        (7, ("loss",), [5.0]),
    ]


def test_end_of_a_generation_sends_what_waits(
    feed: EventFeed, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the connection is ended, which is a flush."""
    device = Device(monkeypatch)
    feed.commit(1, {"loss": torch.ones(())}, {})
    feed.commit(2, {"loss": torch.ones(())}, {})
    device.is_done = True
    feed.end()
    assert [each[0] for each in sent.sent] == [1, 2]
    assert sent.is_over


def test_device_that_stands_still_holds_no_end_up(
    feed: EventFeed, sent: Sent, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collective that was aborted may never end there."""
    Device(monkeypatch)
    feed.commit(1, {"loss": torch.ones(())}, {})
    monkeypatch.setattr("time.sleep", lambda s: setattr(clock, "now_s", clock.now_s + 0.1))
    feed.end()
    assert sent.sent == []
    assert sent.is_over


def test_histograms_are_of_rank_zero_alone(feed: EventFeed, sent: Sent) -> None:
    """Others would compute them for nobody."""
    hist = {"w": torch.randn(5), "b": torch.randn(3)}
    feed.commit(1, {}, hist)
    feed.poll()
    assert sent.sent == [(1, ("w", "b"), 2 * LENGTH)]
    feed.begin(3, 1, 1)
    feed.commit(2, {"loss": 1.0}, hist)
    feed.poll()
    assert sent.sent[1:] == [(2, ("loss",), [1.0])]


def test_histogram_without_memory_is_left_out(
    feed: EventFeed, sent: Sent, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one sentence; the step's numbers stay."""

    def fail(tensor: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(module, "counted", fail)
    for step in (1, 2):
        feed.commit(step, {"loss": 1.0}, {"w": torch.ones(2)})
        feed.poll()
    assert [each[0] for each in sent.sent] == [1, 2]
    assert said == ["elasticd: TensorBoard: numbers of a step were left out: no memory\n"]


def test_what_the_writer_says_is_said_by_rank_zero(
    feed: EventFeed, sent: Sent, said: list[str]
) -> None:
    """And by no other."""
    sent.told = ["it cannot be written."]
    feed.poll()
    assert said == ["elasticd: TensorBoard: it cannot be written.\n"]
    feed.begin(3, 1, 1)
    sent.told = ["it cannot be written."]
    feed.poll()
    assert len(said) == 1


def test_commit_feeds_and_beats_poll(feed: EventFeed, sent: Sent, said: list[str]) -> None:
    """A commit without numbers is not news."""
    scalars = CommitScalars()
    scalars.feed = feed
    scalars.set(scalars.checked({}), 1, None)
    scalars.set(scalars.checked({"loss": 0.5}, {"w": torch.ones(2)}), 2, {"w": torch.ones(2)})
    sent.told = ["a sentence"]
    assert scalars.known() == {"loss": 0.5}
    assert [each[:2] for each in sent.sent] == [(2, ("loss",)), (2, ("w",))]
    assert len(said) == 1


def test_heartbeat_goes_on_whatever_fails(sent: Sent, clock: Clock) -> None:
    """Where stderr is closed, and where the sender has an error of ours."""

    def fail(*args: object) -> None:
        raise OSError("stderr is closed")

    feed = EventFeed(sent, clock=clock, wall_clock=clock, say=fail)
    feed.begin(1, 0, 0)
    sent.told = ["a sentence"]
    feed.poll()
    sent.scalars = fail  # type: ignore[method-assign, assignment]
    feed.commit(1, {"loss": 1.0}, {})
    feed.poll()
    del sent.scalars
    feed.commit(2, {"loss": 2.0}, {})
    feed.poll()
    assert [each[0] for each in sent.sent] == [2]


def test_device_that_failed_hides_no_error_of_the_script(
    feed: EventFeed, sent: Sent, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generation is left because of it; what is here is sent."""
    device = Device(monkeypatch)
    feed.commit(1, {"loss": 0.5}, {})
    feed.commit(2, {"loss": torch.ones(())}, {})

    def fail(fetch: Any) -> bool:
        raise RuntimeError("CUDA error")

    assert device.fetches == 1
    monkeypatch.setattr(module._Fetch, "is_here", fail)
    feed.end()
    assert sent.is_over
    assert [each[0] for each in sent.sent] == [1]
    assert len(said) == 1


class OnGpu:
    """Stands for a number on a GPU, and for a row of them there."""

    is_cpu = False

    def __init__(self, device: torch.device, *values: float) -> None:
        self.device, self.values = device, values
        self.shape = (len(values),)

    def numel(self) -> int:
        return len(self.values)

    def to(self, dtype: torch.dtype) -> "OnGpu":
        assert dtype is torch.float64  # No step's number loses digits.
        return self

    def same(self, *_: object) -> "OnGpu":
        return self

    detach = clone = reshape = same


class Pinned:
    """Stands for a row of the host's memory that a GPU writes by itself."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self._row: Any = None

    def copy_(self, row: OnGpu, *, non_blocking: bool) -> "Pinned":
        self._gpu.note("copy", row.values, non_blocking)
        self._row = row
        return self

    def tolist(self) -> list[float]:
        assert self._gpu.streams[self._row.device].is_done, "read before it has come"
        return list(self._row.values)


def test_numbers_on_gpus_come_in_one_pinned_row_of_each(
    feed: EventFeed, sent: Sent, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event is of the device that the numbers are on, after the copy; none is waited for."""
    gpu = FakeGpu(monkeypatch, own=2)
    other = torch.device("cuda", 0)
    gpu.streams[other] = FakeStream(gpu, other, "compute 0")

    def pinned(shape: tuple[int, ...], **options: Any) -> Pinned:
        gpu.note("empty", shape, options)
        return Pinned(gpu)

    def row_of(parts: list[OnGpu]) -> OnGpu:
        return OnGpu(parts[0].device, *(value for part in parts for value in part.values))

    monkeypatch.setattr("elasticd.train.scalars.event_feed.torch.Tensor", OnGpu)
    monkeypatch.setattr(torch, "empty", pinned)
    monkeypatch.setattr(torch, "cat", row_of)
    options = {"dtype": torch.float64, "pin_memory": True}
    given: Any = {"loss": OnGpu(gpu.own, 0.5), "lr": 0.1, "norm": OnGpu(other, 7.0)}
    gpu.compute.is_done = False
    feed.commit(1, given, {})
    assert gpu.calls == [
        ("empty", (1,), options),
        ("copy", (0.5,), True),
        ("record", "compute 2"),
        ("empty", (1,), options),
        ("copy", (7.0,), True),
        ("record", "compute 0"),
    ]
    for step in (2, 3):
        clock.now_s += FETCH_EVERY_S
        feed.commit(step, {"loss": OnGpu(gpu.own, float(step))}, {})  # type: ignore[dict-item]
        feed.poll()
    assert sent.sent == [] and len(gpu.calls) == 6  # One of two cards has not arrived.
    gpu.compute.is_done = True
    feed.poll()
    assert sent.sent == [(1, ("loss", "lr", "norm"), [0.5, 0.1, 7.0])]
    feed.commit(4, {"lr": 0.1}, {})
    feed.poll()
    assert gpu.calls[6:] == [
        ("empty", (2,), options),
        ("copy", (2.0, 3.0), True),
        ("record", "compute 2"),
    ]
    assert sent.sent[1:] == [(2, ("loss",), [2.0]), (3, ("loss",), [3.0]), (4, ("lr",), [0.1])]
