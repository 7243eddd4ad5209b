"""`elasticd.progress`: a script of restart mode reports its progress.

The call costs two or three microseconds. It keeps the report, and sends it to the agent at most
five times a second, over a connection that is opened at the first call and that the agent never
answers. A report that the agent does not take at once is dropped, since a newer report always
follows; the last report is sent as the process ends. Rejected: a thread that sends (each fork would
have to start it again, and a call that reports a number should not add a thread to a script without
threads); a file (no process reads it five times a second).

A report does not attach the process: the agent still treats it as one of restart mode.
"""

import atexit
import operator
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import RLock
from typing import Any, SupportsIndex

from elasticd.channel.wire import pack
from elasticd.channel.worker import Progressed
from elasticd.errors import CallError
from elasticd.script.events import StepEvents
from elasticd.tensorboard.sender import Sender

__all__ = ["Reporter", "ignore_progress", "progress", "saved"]

SEND_EVERY_S = 0.2
"""The time in seconds between two reports, the same as for a heartbeat of in-process mode."""
SMOOTHING = 0.3
"""The weight of the newest steps: a change of speed is visible within about a second."""

RETRY_S, RETRIES = 5.0, 3
"""The pause in seconds between tries to connect, and the number of tries, if no agent answers: a
worker's child, which the agent does not know, never gets an answer."""

LARGEST = 2**63 - 1
"""The largest step, number of samples or epoch: no script's counter becomes so large."""
NAMES_LIMIT, NAME_LIMIT = 64, 200
"""The largest number of values beside the step, and of characters of a name; a metrics system is
the place for more."""


class Reporter:
    """Keeps the last report and sends it from time to time; any thread may call it."""

    def __init__(self, agent: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`agent` is the name of the agent's socket (`ELASTICD_AGENT`)."""
        self._agent, self._clock = agent, clock
        # A signal handler may save a checkpoint while its own thread holds the lock.
        self._lock = RLock()
        self._socket: socket.socket | None = None
        self._failures = 0
        self._next_s = 0.0
        self._is_sent = True
        self._first_step: int | None = None
        self._step = self._samples = self._epoch = 0
        self._scalars: Mapping[str, Any] = {}
        self._began_s = self._told_s = 0.0
        self._save_s = 0.0
        self._sent_step, self._sent_at_s, self._step_s = 0, 0.0, 0.0

    def report(self, step: int, samples: int, scalars: Mapping[str, Any]) -> None:
        """Note a step that ended now."""
        now_s = self._clock()
        with self._lock:
            self._come_to(step, now_s)
            self._samples += samples
            if "epoch" in scalars:
                self._epoch = operator.index(scalars["epoch"])
            if scalars:
                self._scalars = {n: v for n, v in scalars.items() if n != "epoch"}
        self._send_if_due(now_s)

    def saved(self, step: int, seconds: float) -> None:
        """Note a checkpoint of this step, and the seconds that the script waited for it."""
        now_s = self._clock()
        with self._lock:
            self._come_to(max(step, self._step), now_s)
            self._save_s += seconds
        self._send_if_due(now_s)

    def flush(self) -> None:
        """Send the last report, if it was not sent yet."""
        with self._lock:
            if not self._is_sent and self._failures < RETRIES:
                self._send(self._clock())

    def stop(self) -> None:
        """Stop: no more reports are sent."""
        with self._lock:
            self._failures, self._is_sent = RETRIES, True
            self._close()

    def _come_to(self, step: int, now_s: float) -> None:
        if self._first_step is None:
            self._first_step, self._began_s = step, now_s
        self._step, self._told_s, self._is_sent = step, now_s, False

    def _send_if_due(self, now_s: float) -> None:
        if now_s < self._next_s or self._failures >= RETRIES:
            return
        if self._lock.acquire(blocking=False):
            try:
                self._send(now_s)
            finally:
                self._lock.release()

    def _send(self, now_s: float) -> None:
        """Send as much as is possible without a wait; the caller holds the lock."""
        self._next_s = now_s + SEND_EVERY_S
        assert self._first_step is not None
        self._measure()
        message = Progressed(
            step=self._step,
            first_step=self._first_step,
            samples=self._samples,
            epoch=self._epoch,
            scalars=self._numbers(),
            told_ago_s=now_s - self._told_s,
            stepping_s=self._told_s - self._began_s,
            save_s=self._save_s,
            step_s=self._step_s,
        )
        line = pack(message)
        try:
            if self._socket is None:
                self._socket = _connected(self._agent)
            sent = self._socket.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return
        except OSError:
            self._close()
            self._failures += 1
            self._next_s = now_s + RETRY_S
            return
        if sent < len(line):
            self._close()  # Half a message is invalid; the next message has another connection.
            return
        self._failures, self._is_sent = 0, True

    def _measure(self) -> None:
        """Update the smoothed duration of a step with the steps since the last call."""
        at_s, steps = self._told_s - self._save_s, self._step - self._sent_step
        if self._sent_at_s and steps > 0:
            share = SMOOTHING if self._step_s else 1.0
            self._step_s += share * ((at_s - self._sent_at_s) / steps - self._step_s)
        if steps or not self._sent_at_s:
            self._sent_step, self._sent_at_s = self._step, at_s

    def _numbers(self) -> dict[str, float]:
        """Read the numbers. This waits for a tensor on a device, at most five times a second."""
        found = {}
        for name, value in self._scalars.items():
            # A tensor may be gone, and a whole number too large: a number that is only shown must
            # not end the script.
            with suppress(TypeError, ValueError, OverflowError, RuntimeError):
                detach = getattr(value, "detach", None)  # torch warns about a loss with a graph.
                found[name] = float(detach() if detach is not None else value)
        return found

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def progress(step: SupportsIndex, samples: SupportsIndex = 0, **scalars: Any) -> None:
    """Report that this step has ended, so that `status` shows it; for scripts without
    `elasticd.run`.

    `step` is the script's own number of the step, as in its checkpoint; `samples` is the number of
    samples on which this process has trained since its last call; `scalars` are numbers, or tensors
    of one element, which are shown beside the step (`epoch` is shown as the epoch). A script calls
    it on each rank after each step. Outside of elasticd it does nothing, and also in
    `elasticd.run`, whose commits report the same.

    Raises: CallError: a value is no number.
    """
    try:
        number, count = operator.index(step), operator.index(samples)
    except TypeError:
        wrong = step if not hasattr(step, "__index__") else samples
        raise CallError(
            f"elasticd.progress wants whole numbers of steps and samples, not {wrong!r}."
        ) from None
    for what, value in (("a step", number), ("samples", count)):
        if not 0 <= value <= LARGEST:
            raise CallError(f"elasticd.progress wants {what} from 0 to 2**63, not {_cut(value)}.")
    if scalars:
        _check(scalars)
    reporter = _reporter()
    if reporter is not None:
        reporter.report(number, count, scalars)
        if _EVENTS is not None:
            for sentence in _EVENTS.report(number, scalars):
                sys.stderr.write(f"elasticd: TensorBoard: {sentence}\n")


def saved(step: int, seconds: float) -> None:
    """Report a checkpoint that the script itself made."""
    reporter = _reporter()
    if reporter is not None:
        reporter.saved(step, seconds)


def ignore_progress() -> None:
    """Make `progress` do nothing from now on: the heartbeats of `elasticd.run` report instead."""
    global _REPORTER, _EVENTS
    reporter, events = _REPORTER, _EVENTS
    _REPORTER = _EVENTS = None
    if events is not None:
        events.flush()
    if isinstance(reporter, Reporter):
        reporter.stop()


def _check(scalars: Mapping[str, Any]) -> None:
    if len(scalars) > NAMES_LIMIT:
        raise CallError(
            f"elasticd.progress got {len(scalars)} numbers beside the step: give up to "
            f"{NAMES_LIMIT}."
        )
    for name, value in scalars.items():
        if name == "epoch" and not (
            hasattr(value, "__index__") and 0 <= operator.index(value) <= LARGEST
        ):
            raise CallError(
                f"elasticd.progress(epoch=...) wants a whole number, not {_cut(value)}."
            )
        if len(name) > NAME_LIMIT:
            raise CallError(
                f"elasticd.progress got a number with a name of {len(name)} letters: {NAME_LIMIT} "
                "are enough."
            )
        if type(value) is float or type(value) is int:
            continue
        if getattr(value, "numel", _one)() != 1 or not hasattr(value, "__float__"):
            raise CallError(
                f"elasticd.progress({name}=...) got a {type(value).__name__}: give a number or a "
                "tensor of one element."
            )


def _cut(value: object) -> str:
    """Return the value on one line; Python refuses to write a number of over 4,300 digits."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"one of {value.bit_length()} bits"
    return repr(value)


def _one() -> int:
    return 1


def _connected(agent: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)  # The call must not wait for a full backlog either.
        made.connect("\0" + agent)
    except OSError:
        made.close()
        raise
    return made


_UNKNOWN = object()
_REPORTER: "Reporter | object | None" = _UNKNOWN
"""The reporter; None if there is no agent to report to."""
_EVENTS: StepEvents | None = None
"""The sender of event numbers; None if this is not rank 0, or if the job has no event files."""


def _reporter() -> Reporter | None:
    global _REPORTER, _EVENTS
    if _REPORTER is _UNKNOWN:
        agent = os.environ.get("ELASTICD_AGENT", "")
        _REPORTER = Reporter(agent) if agent else None
        writer = os.environ.get("ELASTICD_EVENT_WRITER", "")
        if agent and writer and os.environ.get("RANK") == "0":
            _EVENTS = StepEvents(Sender(writer), int(os.environ["ELASTICD_GENERATION"]))
        if agent:
            atexit.register(_flush)
            # A data loader's fork is no worker, and must not use the worker's connection.
            os.register_at_fork(after_in_child=_forget)
    return _REPORTER if isinstance(_REPORTER, Reporter) else None


def _flush() -> None:
    if isinstance(_REPORTER, Reporter):
        with suppress(Exception):  # The interpreter ends: a tensor may be gone.
            _REPORTER.flush()
    if _EVENTS is not None:
        with suppress(Exception):
            _EVENTS.flush()


def _forget() -> None:
    global _REPORTER, _EVENTS
    _REPORTER = _EVENTS = None
