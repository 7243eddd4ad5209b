"""`elasticd.progress` on its way to TensorBoard."""

from threading import Thread
from typing import Any

import pytest

from elasticd.script import progress as module
from elasticd.script.events import READ_EVERY_S, StepEvents
from elasticd.script.progress import progress
from elasticd.tensorboard.message import Begin, Scalars, names_of
from elasticd.tensorboard.sender import Sender
from tests.fixtures.patience import patience_s
from tests.unit.tensorboard.test_sender import Clock, Writer, steps, writer

__all__ = ["writer"]

WAIT_S = patience_s(30.0)


class OnDevice:
    """Stands for a tensor on a GPU: to read it is to wait."""

    is_cpu = False

    def __init__(self, value: float) -> None:
        self.value = value
        self.reads = 0

    def detach(self) -> "OnDevice":
        return self

    def clone(self) -> "OnDevice":
        return OnDevice(self.value)

    def numel(self) -> int:
        return 1

    def __float__(self) -> float:
        return self.value


@pytest.fixture
def in_job(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be rank 0 of generation 3."""
    monkeypatch.setenv("ELASTICD_AGENT", "nobody")
    monkeypatch.setenv("ELASTICD_EVENT_WRITER", writer.name)
    monkeypatch.setenv("ELASTICD_GENERATION", "3")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(module, "_REPORTER", module._UNKNOWN)
    monkeypatch.setattr(module, "_EVENTS", None)


def test_rank_zero_sends_every_step(in_job: None, writer: Writer) -> None:
    """Not only five a second; an epoch is no number of the training."""
    for step in range(41, 61):
        progress(step, samples=4, epoch=1, loss=0.5, lr=1)
    module.ignore_progress()
    begin, *found = writer.heard(is_all=True)
    assert begin == Begin(generation=3, step=40)
    assert steps(found) == list(range(41, 61))
    assert isinstance(found[0], Scalars)
    assert (names_of(found[0].names), tuple(found[0].values)) == (["loss", "lr"], (0.5, 1.0))


@pytest.mark.parametrize(
    ("name", "value"), [("RANK", "1"), ("ELASTICD_EVENT_WRITER", ""), ("ELASTICD_AGENT", "")]
)
def test_nobody_else_does(
    in_job: None, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Other ranks, and jobs without event files."""
    monkeypatch.setenv(name, value)
    progress(1, loss=0.5)
    assert module._EVENTS is None
    module.ignore_progress()


def test_numbers_on_a_device_are_read_five_times_a_second(writer: Writer) -> None:
    """In order, as they were at their step; the last with the end of the process."""
    from elasticd.tensorboard.sender import Sender

    clock = Clock()
    events = StepEvents(Sender(writer.name, clock=clock), 1, clock=clock)
    loss: Any = OnDevice(0.0)
    for step in range(1, 6):
        loss.value = float(step)
        assert events.report(step, {"loss": loss}) == []
    events.report(6, {"loss": 6.0})
    assert steps(writer.heard()) == [1]
    clock.now_s += READ_EVERY_S
    events.report(7, {"loss": loss})
    events.report(8, {"loss": loss})
    events.flush()
    found = writer.heard(is_all=True)
    assert [(each.step, *each.values) for each in found if isinstance(each, Scalars)] == [
        (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.0), (6, 6.0), (7, 5.0), (8, 5.0),
    ]  # fmt: skip


def test_what_the_writer_says_is_said(
    in_job: None, writer: Writer, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once, with whose sentence it is."""
    progress(1, loss=0.5)
    writer.accept()
    assert writer.sock is not None
    writer.sock.send(b"it cannot be written.\n")
    assert module._EVENTS is not None
    module._EVENTS._next_s = module._EVENTS._sender._listen_s = 0.0
    progress(2, loss=0.5)
    progress(3, loss=0.5)
    module.ignore_progress()
    assert capfd.readouterr().err == "elasticd: TensorBoard: it cannot be written.\n"


def test_handler_of_a_signal_may_tell_of_a_step_while_one_is_told(writer: Writer) -> None:
    """It runs on the thread that it interrupts: were that waited for, the worker would hang."""

    class Interrupted(OnDevice):
        is_cpu = True

        def __float__(self) -> float:
            events.report(8, {"loss": 0.125})
            return self.value

    events = StepEvents(Sender(writer.name), 1)
    telling = Thread(target=lambda: events.report(7, {"loss": Interrupted(0.5)}), daemon=True)
    telling.start()
    telling.join(WAIT_S)
    assert not telling.is_alive()
    events.flush()
    assert steps(writer.heard(is_all=True)[1:]) == [7]
