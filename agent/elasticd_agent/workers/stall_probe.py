"""Asks whether the other nodes of a world answer, before a worker's standstill is told to anybody.

Nodes that lose each other stop all ranks at once, and not all at the same place: the rank that is
behind then looks like one that hangs, and waits like all the others. So the agent first tries to
connect to the other agents of that world, again and again until all of them answer. On a working
network that takes a round trip, and the verdict goes on as it came.

Where nodes stay apart, connections that fall silent say so (`Broken`), and the world goes on
without one of the nodes. Where none does, as with NCCL, the agent says the same after `HOLD_S`, or
once the worker has made no progress for `progress_timeout_s`: no verdict is held for ever.

An earlier mend wrote whom a node cannot reach into its record, for the rule that compares the
stalls of all nodes. It took one failed probe for the truth, and a stall that others on the node
wait for became one that is told only if all there stand still. Here a verdict is told as it ever
was, or not yet.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from elasticd.net.reachability import unreachable
from elasticd.records.ids import NodeId
from elasticd.records.member import Peer, StallLimit
from elasticd.telemetry.log import get_logger
from elasticd_agent.liveness.hang_detector import Verdict
from elasticd_agent.liveness.progress_timeout import Stalled
from elasticd_agent.workers.attached_workers import AttachedWorkers

__all__ = ["HOLD_S", "StallProbe"]

log = get_logger()

HOLD_S = 20.0
"""How long a verdict is held while nodes are apart. A connection of Gloo's that nothing is
acknowledged on ends after 15 s (`process_group/group.py`), and a rank then says whom it cannot
reach; the first verdict comes 5 s after the last progress."""
PAUSE_S = 1.0
"""The pause before a probe that follows one without an answer: a router that says at once that
there is no way may know one a second later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    verdict: Stalled
    peers: tuple[Peer, ...]
    since_s: float

    def among(self, nodes: frozenset[NodeId]) -> tuple[NodeId, ...]:
        """Return which of these nodes are of its world."""
        return tuple(sorted({peer.node for peer in self.peers} & nodes))


class StallProbe:
    """The verdicts about the workers of one job that wait for an answer of the network. All but
    the probe itself runs on the owner's thread, to which `post` brings its answer; there is one
    probe at a time.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        attached: AttachedWorkers,
        judge: Callable[[Verdict], None],
        *,
        probe: Callable[[tuple[Peer, ...]], tuple[NodeId, ...]] = unreachable,
        pause_s: float = PAUSE_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`judge` gets a verdict unchanged. `attached` passes to the workers which nodes are apart
        from others, and says which workers have another group by now.
        """
        self._post, self._attached, self._judge = post, attached, judge
        self._probe, self._pause_s, self._now_s = probe, pause_s, now_s
        self._held: dict[int, _Held] = {}
        self._silent: frozenset[NodeId] = frozenset()
        """The nodes that did not answer to the last probe."""
        self._is_asking = self._is_said = False
        attached.group_changed = self.drop

    def receive(self, verdict: Verdict) -> None:
        """Pass a verdict on: at once, or, of a worker that stands still, when the agents of the
        other nodes of its world have answered.
        """
        peers: tuple[Peer, ...] = ()
        if isinstance(verdict, Stalled) and not verdict.has_returned:
            peers = self._attached.agents_of(verdict.pid, verdict.generation)
        if not isinstance(verdict, Stalled) or not peers:
            self.drop(verdict.pid)
            self._judge(verdict)
            return
        before = self._held.get(verdict.pid)
        since_s = before.since_s if before is not None else self._now_s()
        self._held[verdict.pid] = _Held(verdict=verdict, peers=peers, since_s=since_s)
        self._ask()

    def drop(self, pid: int) -> None:
        """Forget what is held of a worker that goes on, is in no group any more, or has ended."""
        self._held.pop(pid, None)

    def _ask(self) -> None:
        if self._is_asking:
            return
        if not self._held:
            self._silent, self._is_said = frozenset(), False
            return
        asked = dict(self._held)
        pause_s = self._pause_s if self._silent else 0.0
        ask = partial(self._try, asked, pause_s)
        try:
            threading.Thread(target=ask, name="stall-probe", daemon=True).start()
        except RuntimeError as exc:  # No thread: judged as if nobody had asked.
            log.warning("stall.not_probed", why=str(exc))
            self._answered(asked, frozenset())
        else:
            self._is_asking = True

    def _try(self, asked: Mapping[int, _Held], pause_s: float) -> None:
        """Ask all at once, on a thread of its own."""
        silent: frozenset[NodeId] = frozenset()
        try:
            time.sleep(pause_s)
            peers = dict.fromkeys(peer for held in asked.values() for peer in held.peers)
            silent = frozenset(self._probe(tuple(peers)))
        except Exception as exc:  # Whatever it is, a rank that hangs is not to be kept for it.
            log.warning("stall.not_probed", why=repr(exc))
        self._post(partial(self._answered, asked, silent))

    def _answered(self, asked: Mapping[int, _Held], silent: frozenset[NodeId]) -> None:
        """Pass on the verdicts that this answer decides, and ask again for the others."""
        self._is_asking = False
        twice, self._silent = silent & self._silent, silent
        for pid, held in asked.items():
            if self._held.get(pid) is not held:
                continue  # It is no news any more, or a longer limit was passed meanwhile.
            lost = held.among(silent)
            is_over = self._now_s() - held.since_s >= HOLD_S
            is_due = is_over or held.verdict.limit is StallLimit.PROGRESS
            is_left = is_due and self._attached.has_news(pid, held.verdict.generation)
            if not lost or is_left or (is_over and not held.among(twice)):
                self.drop(pid)
                self._judge(held.verdict)
            elif (known := held.among(twice)) and is_due:
                self.drop(pid)
                self._attached.report_partition(pid, held.verdict.generation, known)
            elif known and not self._is_said:
                self._is_said = True
                log.warning("worker.apart", pid=pid, unreachable=known)
        self._ask()
