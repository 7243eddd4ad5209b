"""`elasticd.progress`: what reaches the agent, and what a script may hand in."""

import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from queue import Empty, Queue
from threading import Thread

import pytest
import torch

from elasticd.channel.worker import Progressed
from elasticd.errors import CallError
from elasticd.records.ids import Life
from elasticd.script import progress as module
from elasticd.script.progress import RETRIES, RETRY_S, SEND_EVERY_S, Reporter, progress
from elasticd_agent.liveness.worker_sockets import WorkerSockets
from tests.fixtures.attached import ME, WAIT_S, Said, attach, ended_well, forked


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def said() -> Said:
    return Queue()


@pytest.fixture
def agent(said: Said) -> Iterator[WorkerSockets]:
    agent = WorkerSockets(Life("a1b2"), lambda pid, message: said.put((pid, message)))
    agent.allow(ME)
    yield agent
    agent.close()


@pytest.fixture
def in_job(agent: WorkerSockets, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be a worker that said nothing yet."""
    monkeypatch.setenv("ELASTICD_AGENT", agent.name)
    monkeypatch.setattr(module, "_REPORTER", module._UNKNOWN)
    yield
    module.ignore_progress()


def told(said: Said) -> Progressed:
    pid, message = said.get(timeout=WAIT_S)
    assert pid == ME
    assert isinstance(message, Progressed)
    return message


def test_what_was_told_reaches_the_agent(agent: WorkerSockets, said: Said) -> None:
    """The newest step, sums of this process, and seconds without what saving took."""
    clock = Clock()
    one = Reporter(agent.name, clock)
    one.report(10, 4, {"epoch": 2, "loss": 0.5})
    assert told(said) == Progressed(
        step=10, first_step=10, samples=4, epoch=2, scalars={"loss": 0.5}
    )
    clock.now_s += 3.0
    one.saved(10, 1.0)
    clock.now_s += 2.0
    one.report(12, 4, {})
    told(said)
    newest = told(said)
    assert (newest.step, newest.first_step, newest.samples, newest.epoch) == (12, 10, 8, 2)
    assert (newest.stepping_s, newest.save_s, newest.told_ago_s) == (5.0, 1.0, 0.0)
    assert newest.scalars == {"loss": 0.5}
    assert newest.step_s == pytest.approx(2.0)
    one.stop()


def test_agent_hears_five_times_a_second_and_the_last_in_the_end(
    agent: WorkerSockets, said: Said
) -> None:
    """A thousand steps a second cost what five do; what was told last is not lost."""
    clock = Clock()
    one = Reporter(agent.name, clock)
    for step in range(1, 1001):
        clock.now_s = 100.0 + 0.001 * step
        one.report(step, 1, {})
    one.flush()
    one.flush()
    one.stop()
    heard: list[Progressed] = []
    while not heard or heard[-1].step < 1000:
        heard.append(told(said))
    assert len(heard) <= 2 + 1.0 / SEND_EVERY_S
    assert heard[-1].samples == 1000
    with pytest.raises(Empty):
        said.get(timeout=0.05)


def test_script_of_restart_mode_stays_one(agent: WorkerSockets, said: Said) -> None:
    """It attaches nothing; a process that attaches as well is heard on both connections."""
    one = Reporter(agent.name, Clock())
    one.report(1, 0, {})
    assert told(said).step == 1
    assert not agent._attached
    sock = attach(agent, said)
    assert list(agent._attached) == [ME]
    one.stop()
    sock.close()
    assert said.get(timeout=WAIT_S) == (ME, None)


def test_checkpoint_of_an_older_step_takes_no_step_back(agent: WorkerSockets, said: Said) -> None:
    """A save may be of a step that is over for long."""
    one = Reporter(agent.name, Clock())
    one.report(7, 0, {})
    one.saved(5, 0.1)
    one.flush()
    assert [told(said).step, told(said).step] == [7, 7]
    one.stop()


def test_number_that_is_not_finite_is_told(agent: WorkerSockets, said: Said) -> None:
    """That it is not is what somebody wants to know."""
    one = Reporter(agent.name, Clock())
    one.report(1, 0, {"loss": math.nan, "huge": 10**400})
    assert [name for name in told(said).scalars if name != "huge"] == ["loss"]
    one.stop()


def test_loss_with_a_graph_is_read_without_a_warning(agent: WorkerSockets, said: Said) -> None:
    """Scripts give the loss as they have it; torch warns if it is read without `detach`."""
    one = Reporter(agent.name, Clock())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.report(1, 0, {"loss": torch.ones((), requires_grad=True) * 0.5})
    assert told(said).scalars == {"loss": 0.5}
    one.stop()


class SavingNumber:
    """A loss whose copy from the device is waited for just as SIGTERM's handler saves."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def __float__(self) -> float:
        self._reporter.saved(3, 0.5)
        return 0.25


def test_handler_of_a_signal_may_save_while_a_step_is_told(
    agent: WorkerSockets, said: Said
) -> None:
    """It runs on the thread that it interrupts: were that waited for, the worker would hang."""
    one = Reporter(agent.name, Clock())
    done = Thread(target=lambda: one.report(2, 0, {"loss": SavingNumber(one)}), daemon=True)
    done.start()
    done.join(WAIT_S)
    assert not done.is_alive()
    one.flush()
    assert told(said).scalars == {"loss": 0.25}
    one.stop()


def test_who_does_not_answer_is_given_up() -> None:
    """The agent knows no children of a worker: they stop asking, and never fail."""
    clock = Clock()
    one = Reporter("elasticd-nobody", clock)
    for _ in range(RETRIES + 2):
        one.report(1, 0, {})
        clock.now_s += RETRY_S
    one.flush()
    assert one._failures == RETRIES


def test_what_a_worker_forks_says_nothing(said: Said, in_job: None) -> None:
    """A loader's process has the worker's connection, and would be taken for the worker."""
    progress(1)
    assert told(said).step == 1

    def child() -> bool:
        progress(99)
        return module._reporter() is None

    assert ended_well(forked(child))
    progress(2)
    module._flush()
    assert told(said).step == 2


def test_run_takes_over(said: Said, in_job: None) -> None:
    """In `elasticd.run` commits say how far it is, and there is one who says it."""
    progress(1)
    assert told(said).step == 1
    module.ignore_progress()
    progress(2)
    module._flush()
    with pytest.raises(Empty):
        said.get(timeout=0.05)


@pytest.mark.parametrize("in_elasticd", [False, True])
@pytest.mark.parametrize(
    ("args", "scalars", "sentence"),
    [
        (("3",), {}, "whole numbers of steps and samples, not '3'"),
        ((1, 2.5), {}, "whole numbers of steps and samples, not 2.5"),
        ((-1,), {}, "wants a step from 0 to 2**63, not -1"),
        ((1, -2), {}, "wants samples from 0"),
        ((10**5000,), {}, "wants a step from 0 to 2**63, not one of 16610 bits"),
        ((1,), {"epoch": 10**5000}, "a whole number, not one of 16610 bits"),
        ((1,), {"loss": "low"}, "progress(loss=...) got a str"),
        ((1,), {"loss": [1.0]}, "progress(loss=...) got a list"),
        ((1,), {"epoch": 1.5}, "progress(epoch=...) wants a whole number, not 1.5"),
        ((1,), {f"n{i}": 1.0 for i in range(65)}, "65 numbers beside the step"),
        ((1,), {"n" * 201: 1.0}, "a name of 201 letters"),
    ],
)
def test_what_is_no_number_is_refused(
    in_elasticd: bool,
    args: tuple[object, ...],
    scalars: dict[str, object],
    sentence: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one sentence, and outside of elasticd too: where somebody tries the script first."""
    if in_elasticd:
        request.getfixturevalue("in_job")
    else:
        monkeypatch.delenv("ELASTICD_AGENT", raising=False)
        monkeypatch.setattr(module, "_REPORTER", module._UNKNOWN)
    with pytest.raises(CallError) as raised:
        progress(*args, **scalars)  # type: ignore[arg-type]
    assert sentence in str(raised.value)


def test_plain_python_needs_no_agent_and_no_torch() -> None:
    """One line that may stay in a script which runs anywhere."""
    code = (
        "import sys, elasticd\n"
        "elasticd.progress(3, samples=2, epoch=1, loss=0.5)\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "ELASTICD_AGENT"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_silent_agent_is_not_waited_for(agent: WorkerSockets) -> None:
    """Whatever does not fit into the socket is dropped: training goes on."""
    agent.close()  # Nobody reads, and somebody else listens at the name.
    other = WorkerSockets(Life("c3d4"), lambda pid, message: None)
    try:
        clock = Clock()
        one = Reporter(other.name, clock)
        for step in range(1, 20_000):
            clock.now_s += SEND_EVERY_S
            one.report(step, 0, {"loss": 0.5})
        one.stop()
    finally:
        other.close()
