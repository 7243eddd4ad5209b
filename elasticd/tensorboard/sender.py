"""A worker's connection to the writer of event files on its node.

Steps are kept when they arrive and sent five times a second. To send never waits: the bytes that
fit go into the socket's buffer, where they outlive the process, and the rest stays here until the
next time. All ranks keep their last steps, and only rank 0 is connected. A new rank 0, or a rank 0
with a restarted writer, sends all kept steps, and the writer takes those that are in no file yet.
Rejected: to send each step in its commit. It cost the training thread a system call per step, and
it saved only the last fifth of a second before a kill: steps that are repeated, or that the next
rank 0 has kept.
"""

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock

from elasticd.tensorboard.message import (
    Begin,
    ScalarPacker,
    name_block,
    pack,
    pack_histograms,
)

__all__ = ["NAMES_LIMIT", "Sender"]

KEPT_BYTES = 4 << 20
"""The size limit of the kept steps, in bytes: some 40,000 steps of one number; a writer flushes
after at most two minutes."""
NAMES_LIMIT = 1000
"""The largest number of different names of a job: TensorBoard draws a chart for each."""
NAME_LIMIT = 500
RETRY_S = 1.0
LISTEN_S = 1.0
"""The time in seconds between two reads from the writer: it seldom sends anything, and a read costs
as much as a send."""
CHUNK_BYTES = 1 << 16
SEND_BUFFER_BYTES = 1 << 20
_PACKERS_LIMIT = 256
_TOLD_BYTES = 4096


class Sender:
    """The sender of one worker. Any thread may call `scalars`, `histograms`, `poll` and `end`; none
    waits for the writer.
    """

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`name` is the name of the writer's abstract socket (ELASTICD_EVENT_WRITER)."""
        self._name, self._clock = name, clock
        self._lock = Lock()
        self._kept: deque[tuple[int, bytes]] = deque()
        """The kept frames as (step, frame); the last `_unsent` of them are not sent yet."""
        self._kept_bytes = self._unsent = 0
        self._rest = b""
        """The rest of a frame whose beginning was sent."""
        self._begin: Begin | None = None
        self._socket: socket.socket | None = None
        self._retry_s = self._listen_s = 0.0
        self._heard = b""
        self._known: set[str] = set()
        self._packers: dict[tuple[str, ...], tuple[ScalarPacker, tuple[int, ...] | None]] = {}
        self._warnings: list[str] = []
        self._told: set[str] = set()
        self.dropped = 0
        """The number of steps that were dropped before they were sent."""
        # A data loader's fork must not keep the connection open: the end of the connection is a
        # flush.
        os.register_at_fork(after_in_child=self._forget)

    def begin(self, generation: int, step: int, *, is_writer: bool) -> None:
        """Begin as a rank of this generation, in which `step` steps count; rank 0 connects.

        A `step` of -1 is not known; the first step that is sent shows it.
        """
        with self._lock:
            self._close()
            while step >= 0 and self._kept and self._kept[-1][0] > step:
                self._kept_bytes -= len(self._kept.pop()[1])
            self._begin = Begin(generation=generation, step=step) if is_writer else None
            self._unsent, self._retry_s = len(self._kept), 0.0
            self._push()

    def scalars(
        self, step: int, at_unix_s: float, names: tuple[str, ...], values: Sequence[float]
    ) -> None:
        """Keep a step's numbers; `poll` or `end` sends them if this is rank 0."""
        with self._lock:
            packer, chosen = self._packers.get(names) or self._packer(names)
            if chosen is not None:
                values = [values[index] for index in chosen]
            if values:
                self._add(step, packer.pack(at_unix_s, step, values))

    def histograms(
        self, step: int, at_unix_s: float, names: tuple[str, ...], values: Sequence[float]
    ) -> None:
        """Keep a step's histograms."""
        frame = pack_histograms(at_unix_s, step, name_block(names), values)
        with self._lock:
            self._add(step, frame)

    def poll(self) -> list[str]:
        """Send the steps that were not sent before; return messages for the user."""
        with self._lock:
            self._push()
            self._listen()
            told, self._warnings = self._warnings, []
        return told

    def end(self) -> None:
        """End the part in this generation; the writer flushes when the connection ends."""
        with self._lock:
            for _ in range(2):
                # There is no later try, so the pause before a new connection is skipped.
                self._retry_s = 0.0
                self._push()
            self._close()
            self._begin = None

    # --- the lock is held -------------------------------------------------------------------------

    def _add(self, step: int, frame: bytes) -> None:
        self._kept.append((step, frame))
        self._kept_bytes += len(frame)
        self._unsent += 1
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= len(self._kept.popleft()[1])
        if self._unsent > len(self._kept):
            if self._begin is not None:
                self.dropped += self._unsent - len(self._kept)
                self._warn_once(
                    "the writer of event files does not read what it is sent: steps are left out."
                )
            self._unsent = len(self._kept)

    def _push(self) -> None:
        """Send as many bytes as the socket's buffer takes."""
        if self._begin is None or not (self._socket is not None or self._connect()):
            return
        assert self._socket is not None
        while self._rest or self._unsent:
            if not self._rest:
                self._rest = self._next_chunk()
            try:
                sent = self._socket.send(self._rest, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:
                self._close()
                self._retry_s = self._clock() + RETRY_S
                return
            self._rest = self._rest[sent:]

    def _next_chunk(self) -> bytes:
        kept, unsent, size = self._kept, self._unsent, 0
        frames = []
        while unsent and size < CHUNK_BYTES:
            frame = kept[-unsent][1]
            frames.append(frame)
            size += len(frame)
            unsent -= 1
        self._unsent = unsent
        return b"".join(frames)

    def _connect(self) -> bool:
        assert self._begin is not None
        now_s = self._clock()
        if now_s < self._retry_s or (self._begin.step < 0 and not self._kept):
            return False
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            made.setblocking(False)  # The call must not wait for a full backlog either.
            made.connect("\0" + self._name)
        except OSError:
            made.close()
            self._retry_s = now_s + RETRY_S
            return False
        self._socket, self._heard = made, b""
        step = self._begin.step if self._begin.step >= 0 else self._kept[0][0] - 1
        self._begin = Begin(generation=self._begin.generation, step=step)
        self._rest, self._unsent = pack(self._begin), len(self._kept)
        return True

    def _listen(self) -> None:
        """Read the writer's sentences for people, one per line."""
        if self._socket is None or (now_s := self._clock()) < self._listen_s:
            return
        self._listen_s = now_s + LISTEN_S
        try:
            heard = self._socket.recv(_TOLD_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._close()
            self._retry_s = self._clock() + RETRY_S
            return
        *lines, self._heard = (self._heard + heard).split(b"\n")
        self._warnings += [line.decode("utf-8", "replace") for line in lines]

    def _packer(self, names: tuple[str, ...]) -> tuple[ScalarPacker, tuple[int, ...] | None]:
        """Return the packer of these names, and the places of those that are sent; None if all."""
        chosen = tuple(index for index, name in enumerate(names) if self._is_shown(name))
        if len(chosen) < len(names):
            self._warn_once(
                f"the first {NAMES_LIMIT} names of a job are written, of up to {NAME_LIMIT} "
                "letters; others that commit was given are left out."
            )
        if len(self._packers) >= _PACKERS_LIMIT:
            self._packers.clear()
        packer = ScalarPacker(name_block([names[index] for index in chosen]), len(chosen))
        found = self._packers[names] = packer, None if len(chosen) == len(names) else chosen
        return found

    def _is_shown(self, name: str) -> bool:
        if len(name) > NAME_LIMIT:
            return False
        if name not in self._known and len(self._known) < NAMES_LIMIT:
            self._known.add(name)
        return name in self._known

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            self._warnings.append(sentence)

    def _close(self) -> None:
        self._rest = b""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _forget(self) -> None:
        """Drop the connection in a forked child, since the connection is the parent's."""
        self._lock = Lock()
        self._begin = None
        if self._socket is not None:
            with suppress(OSError):
                os.close(self._socket.detach())
            self._socket = None
