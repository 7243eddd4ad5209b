"""One generation's process group: formed, aborted from any thread, taken down, in one process.

The intuition: a group must be able to end at any moment, in whatever call this rank is stuck, and
leave nothing behind, because the next generation's group is formed a moment later in the same
process. torch offers no way to wake a Gloo collective, a rendezvous or a store call whose peer is
silent; their sockets do (`open_sockets.py`), but for what Gloo loses (`gloo_group.py`). Since
libraries retry, and open further sockets when one fails, a guard thread shuts down what it finds
again and again until the group is closed. Rejected: a process group in a process of its own (copies
every gradient), short timeouts (a slow step is not a dead peer).

NCCL has no sockets of ours to shut: it is left by its abort (`nccl.py`), whatever the reason.
"""

import gc
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import HashStore, PrefixStore  # type: ignore[attr-defined]

from elasticd.channel.worker import Enter
from elasticd.errors import EnvironmentProblem
from elasticd.net.reachability import unreachable
from elasticd.net.reverse_dns import skip_reverse_lookups
from elasticd.records.ids import NodeId
from elasticd.tensors import cuda
from elasticd.train.device.device import CPU
from elasticd.train.group_broken import GroupBroken
from elasticd.train.process_group import default_group, gloo_group, nccl
from elasticd.train.process_group.device_progress import DeviceProgress
from elasticd.train.process_group.gloo_connections import GlooConnections
from elasticd.train.process_group.gloo_lost import LostCollectives
from elasticd.train.session import departure
from elasticd.train.session.step_session import DeviceMark
from elasticd.train.tcp_store import open_sockets
from elasticd.train.tcp_store.client import connect, is_of_silent_host, keepalive
from elasticd.train.tcp_store.open_sockets import OpenSocket
from elasticd.train.tcp_store.start_barrier import gather

__all__ = ["Group", "GroupBroken"]

_NAMING_LIMIT_S = 1.0
"""What is left, when the time of forming is over, to ask the store who did not come."""

CONNECT_S, CONNECT_S_PER_RANK = 10.0, 0.05
"""What ranks that have all come get to connect to each other: Gloo makes a mesh of them."""

LEAVE_S = 2.0
"""How long a rank that leaves NCCL as planned waits for the others to have come so far: who is in
the kernels of the last collective may still read this rank's memory."""

LINK_SILENCE_S = 15
"""A connection whose other end acknowledges nothing for so long is over. Gloo's own threads take in
what was asked for, however long a rank computes; only a stopped process or a cut does not."""

_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.005, 0.05
"""Between two rounds: Gloo makes four attempts to connect, a store client about two in a second."""

_OLD_GROUPS_LIMIT = 3
"""Groups that are closed and still referred to; a full collection may take a tenth of a second."""


class Group:
    """The default process group of one generation.

    `form`, `synchronize` and `close` belong to the training thread; `abort`, `sequence`, `guarding`
    and `is_peer_gone` to any.
    """

    def __init__(
        self,
        enter: Enter,
        *,
        timeout_s: float,
        device: torch.device = CPU,
        backend: str | None = None,
        env: MutableMapping[str, str] | None = None,
        on_abort: Callable[[], object] | None = None,
    ) -> None:
        """`device` decides the backend where none is named; NCCL's limit is set in `env`."""
        self.rank, self.size = int(enter.rank), enter.size
        self.generation = int(enter.generation)
        self.address = "127.0.0.1"
        """Where this host is reached by those who reach the store."""
        self._enter, self._device = enter, device
        self.backend = backend or default_group.backend_of(device)
        self.arrival = DeviceProgress(device)
        self._connect_limit_s = CONNECT_S + CONNECT_S_PER_RANK * self.size
        self._nccl: nccl.NcclCommunicators | None = None
        if default_group.has_nccl(self.backend):
            self._nccl = nccl.NcclCommunicators(device, self._connect_limit_s, env)
            self._connect_limit_s = self._nccl.connect_limit_s
        self._timeout_s, self._on_abort = timeout_s, on_abort or (lambda: None)
        self._store: Any = None
        self._process_group: Any = None
        self._known: frozenset[int] = frozenset()
        self._links: tuple[OpenSocket, ...] = ()
        self._ends: GlooConnections | None = None
        self._store_address: open_sockets.Address | None = None
        self._guarded: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._changed, self._over = threading.Event(), threading.Event()
        self._has_begun = self._is_formed = self._is_aborted = self._is_closed = False
        self._was_peer_gone = False
        self._deadline_s: float | None = None
        self._guard: threading.Thread | None = None

    @property
    def store(self) -> Any:
        """The generation's own store; raises GroupBroken if the group is not formed."""
        if self._store is None:
            raise GroupBroken(f"Generation {self.generation} has no store: it is not formed.")
        return self._store

    def form(self) -> None:
        """Connect to the generation's store and make the default process group.

        Raises:
            GroupBroken: not all ranks came in time, somebody was lost meanwhile, or the group was
                aborted; nothing of it is left then.
            EnvironmentProblem: this rank trains on another kind of device than the others.
        """
        default_group.reset_count()
        deadline_s = time.monotonic() + self._timeout_s
        self._deadline_s = deadline_s + _NAMING_LIMIT_S
        try:
            self._form(deadline_s)
        except BaseException as exc:
            is_timed_out = not self._is_aborted and (self._is_timed_out() or is_of_silent_host(exc))
            self.close()
            # Its frames hold the store and half a group, which would live as long as the error.
            traceback.clear_frames(exc.__traceback__)
            is_said = isinstance(exc, GroupBroken | EnvironmentProblem)
            if is_said or not isinstance(exc, Exception):
                raise
            raise GroupBroken.while_formed(
                self.generation, exc, is_aborted=self._is_aborted, is_timed_out=is_timed_out
            ) from exc
        finally:
            self._deadline_s = None

    @property
    def is_aborted(self) -> bool:
        return self._is_aborted

    def abort(self) -> None:
        """Wake every wait in this group, now and until the group is closed; return at once."""
        with self._lock:
            if self._is_closed or self._is_aborted:
                self._is_aborted = True
                return
            self._was_peer_gone = any(open_sockets.is_gone(link) for link in self._links)
            self._is_aborted = True
            self._on_abort()  # The flag is up before anything wakes.
            self._shut()
        if self._nccl is not None:  # Gloo's abort does not wake anything.
            self._nccl.begin_abort()
        self._changed.set()

    def close(self) -> None:
        """Take the group down; its descriptors and threads are free once nothing refers to it.

        An old DistributedDataParallel does, and is often part of a cycle. So that generations
        do not add up until the collector comes by, it is called when a few of them have.
        """
        self._on_abort()  # For a step that nobody has committed.
        if self._nccl is not None and self._has_begun:
            is_planned = self._is_formed and not self._is_aborted
            self._nccl.leave(self._await_others if is_planned else None)
        if self._has_begun:
            with self._lock:
                if not self._is_closed and not self._is_aborted:
                    self._shut()
            default_group.drop()
        with self._lock:
            if not self._is_closed:
                self._shut()
            # From here on no thread touches a socket for us: those are the next generation's.
            self._is_closed = True
            self._guarded.clear()
        if self._ends is not None:
            self._ends.close()
        self.arrival.close()
        self._over.set()
        self._changed.set()
        if self._guard is not None:
            self._guard.join()
        self._guard = self._process_group = self._store = None
        if len(open_sockets.gloo_loops(())) - gloo_group.kept_count() > _OLD_GROUPS_LIMIT:
            gc.collect()

    def sequence(self) -> int:
        """Collectives that this rank has begun in the default group."""
        group = self._process_group
        if group is None:
            return 0
        # Three times a step: `suppress` would double what it costs.
        try:
            return int(group._get_sequence_number_for_group())
        except RuntimeError:
            return 0

    def arrived(self) -> int:
        """Return how many of these the device has come to; the CPU is ahead of a GPU."""
        return self.arrival.count(self.sequence())

    def is_in_collective(self) -> bool:
        """Return whether one that this rank has begun has no result yet; False if not known."""
        return gloo_group.is_result_missing(self._process_group)

    def is_peer_gone(self) -> bool:
        """Return True if the other side, or an error, has ended a connection of this group."""
        with self._lock:
            if self._is_aborted or self._is_closed:
                return self._was_peer_gone
            return any(open_sockets.is_gone(link) for link in self._links)

    def unreachable(self) -> tuple[NodeId, ...]:
        """Find out which other nodes of the world do not answer; takes up to a second or two."""
        return unreachable(self._enter.agents)

    def synchronize(self, is_current: Callable[[], bool], mark: DeviceMark | None = None) -> bool:
        """Wait until the work on the device's stream is done, up to `mark` if that is given, or the
        generation is over; return whether a connection has ended.

        Nothing is to be waited for on a CPU: Gloo's collectives are done when their call returns,
        or, with `async_op=True`, when the script has waited for them, as it must before it steps.

        Raises:
            GroupBroken: the group was aborted, so what its collectives gave is not to be used.
        """
        if self._device.type == "cuda" and cuda.is_used():
            begun = self.sequence() if mark is None else mark.begun
            event = mark or cuda.mark(self._device)
            is_done = cuda.await_event(event, lambda: self._is_aborted or not is_current())
            if is_done and begun is not None:
                self.arrival.completed(begun)
        if self._is_aborted:
            raise GroupBroken(f"Generation {self.generation} was aborted.")
        return self.has_ended()

    def has_ended(self) -> bool:
        """Return True if a connection of the formed group has ended; the training thread asks."""
        return self._ends is not None and self._ends.has_any()

    def has_all_results(self) -> bool:
        """Return whether this rank has the result of every collective that it began; for the
        training thread.
        """
        return not self._is_aborted and gloo_group.has_all_results()

    def last_step(self, least: int, is_over: Callable[[], bool]) -> int | None:
        """Agree with all ranks after which step to leave; None if it is over or one is gone."""

        def is_past() -> bool:
            return is_over() or self._is_aborted or self.has_ended()

        store = self.store
        if self.size > 1:
            # A client of torch's serves one thread at a time, and the script may be waiting in
            # the store for a rank that waits for our word here.
            store = self._connect(time.monotonic() + departure.CONNECT_S, is_past)
        return departure.agree(store, self.rank, self.size, least=least, is_over=is_past)

    @contextmanager
    def guarding(self, one: socket.socket) -> Iterator[None]:
        """Let `abort` shut this socket down too, as long as the block lasts.

        Raises:
            GroupBroken: the group was aborted before.
        """
        with self._lock:
            if self._is_aborted or self._is_closed:
                raise GroupBroken(f"Generation {self.generation} was aborted.")
            self._guarded.add(one)
        try:
            yield
        finally:
            with self._lock:
                self._guarded.discard(one)

    def _form(self, deadline_s: float) -> None:
        self._known = open_sockets.inodes()
        self._guard = threading.Thread(target=self._keep_guard, name="elasticd-guard", daemon=True)
        self._guard.start()
        if self.size == 1:
            self._store = HashStore()
        else:
            skip_reverse_lookups()
            self._store = self._connect(deadline_s, lambda: self._is_aborted)
            self._gather(deadline_s)
        self._has_begun = True
        self._make()
        if self._is_aborted:
            raise GroupBroken(f"Generation {self.generation} was aborted while it was formed.")
        self._is_formed = True

    def _make(self) -> None:
        with self._nccl.connecting() if self._nccl is not None else nullcontext():
            group = default_group.make(
                self.backend, self._store, rank=self.rank, size=self.size, device=self._device
            )
            with self._lock:
                self._process_group = group
                loops = open_sockets.gloo_loops(self._known)
                self._links = tuple(link for loop in loops for link in loop.links)
                for link in self._links:
                    open_sockets.set_user_timeout(link, LINK_SILENCE_S)
                self._known |= {loop.listener.inode for loop in loops}
                self._ends = GlooConnections(self._links)
            if self._nccl is not None:
                self._nccl.connect(lambda: self._is_aborted or self._is_timed_out())

    def _await_others(self) -> None:
        """Wait, but not for long, until all ranks leave: no abort may come before."""
        store, until_s = PrefixStore("left", self._store), time.monotonic() + LEAVE_S
        with suppress(RuntimeError):  # The store may be gone by now, with its node.
            gather(store, rank=self.rank, size=self.size, deadline_s=until_s)

    def _connect(self, deadline_s: float, is_over: Callable[[], bool]) -> Any:
        store = self._enter.store
        client = connect(
            store.host, store.port, deadline_s=deadline_s, is_over=is_over, found=self._found
        )
        client.set_timeout(timedelta(seconds=default_group.COLLECTIVE_TIMEOUT_S))
        return PrefixStore(f"g{self.generation}", client)

    def _found(self, own: str, store: open_sockets.Address) -> None:
        self.address, self._store_address = own, store

    def _gather(self, deadline_s: float) -> None:
        """Wait until every rank is here; from then on it is a matter of milliseconds."""
        kind = self._device.type
        with keepalive(self._store_address, self._known):
            gathered = gather(
                self._store, rank=self.rank, size=self.size, deadline_s=deadline_s, kind=kind
            )
        gathered.check(self.generation, self.rank, kind, is_timed_out=not self._is_aborted)
        soon_s = time.monotonic() + self._connect_limit_s
        if self._deadline_s is not None and soon_s < self._deadline_s:
            self._deadline_s = soon_s
            self._changed.set()

    def _keep_guard(self) -> None:
        """Thread: end a forming that takes too long; shut sockets of an aborted group again."""
        unblocked: set[int] = set()
        pause_s, over_s = _FIRST_PAUSE_S, 0.0
        losses: LostCollectives | None = None
        while not self._is_closed:
            if not self._is_aborted and not self._is_timed_out():
                self._changed.wait(self._left_s())
                self._changed.clear()
                continue
            with self._lock:
                if self._is_closed:
                    return
                self._shut()
                loops = open_sockets.gloo_loops(self._known)
            over_s = over_s or time.monotonic()
            if self._nccl is not None:
                self._nccl.begin_abort()
                self._nccl.check(time.monotonic() - over_s)
            if losses is None:
                every = [*self._links, *(link for loop in loops for link in loop.links)]
                losses = LostCollectives([link.inode for link in every])
            losses.give_up_lost()
            for loop in loops:
                if loop.listener.inode not in unblocked:
                    unblocked.add(loop.listener.inode)
                    open_sockets.fail_pending_accepts(loop.listener, self.size + 1)
            self._over.wait(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)

    def _left_s(self) -> float | None:
        return None if self._deadline_s is None else self._deadline_s - time.monotonic()

    def _is_timed_out(self) -> bool:
        return (left_s := self._left_s()) is not None and left_s <= 0.0

    def _shut(self) -> None:
        """One round; the lock is held, so that it cannot hit the next generation's sockets."""
        for link in self._links:
            open_sockets.shutdown(link)
        for loop in open_sockets.gloo_loops(self._known):
            for link in loop.links:
                open_sockets.shutdown(link)
        if self._store_address is not None:
            for link in open_sockets.store_links(self._store_address, self._known):
                open_sockets.shutdown(link)
        for one in self._guarded:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
