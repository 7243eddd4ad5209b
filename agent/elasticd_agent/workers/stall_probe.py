"""Asks which nodes cannot be reached, before a worker's standstill is told to the others.

Nodes that lose each other stop all ranks at once, and not all at the same place: the rank that is
behind then looks like one that hangs, and waits like all the others. So the agent first tries to
connect to the other agents of that world. On a working network that takes a round trip. A worker
that goes on meanwhile was no news, and neither is one that has ended.
"""

from collections.abc import Callable
from functools import partial
from threading import Thread

from elasticd.net.reachability import unreachable
from elasticd.records.ids import NodeId
from elasticd.records.member import Peer
from elasticd.telemetry.log import get_logger
from elasticd_agent.liveness.hang_detector import Verdict
from elasticd_agent.liveness.progress_timeout import Stalled

__all__ = ["StallProbe"]

log = get_logger()

Told = Callable[[Verdict, tuple[NodeId, ...]], None]


class StallProbe:
    """The verdicts about the workers of one job on their way. All but the probes themselves run on
    the owner's thread.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        tell: Told,
        *,
        probe: Callable[[tuple[Peer, ...]], tuple[NodeId, ...]] = unreachable,
    ) -> None:
        """`tell` takes each verdict on, with the nodes that did not answer."""
        self._post, self._tell, self._probe = post, tell, probe
        self._asked: dict[int, Verdict] = {}

    def hear(self, verdict: Verdict, others: tuple[Peer, ...]) -> None:
        """Tell a verdict at once, or, of a worker that stands still, when the `others` of its world
        were tried.
        """
        if not isinstance(verdict, Stalled) or verdict.has_returned or not others:
            self._asked.pop(verdict.pid, None)
            self._tell(verdict, ())
            return
        self._asked[verdict.pid] = verdict

        def ask() -> None:
            silent = self._probe(others)
            self._post(partial(self._answered, verdict, silent))

        Thread(target=ask, name="stall-probe", daemon=True).start()

    def _answered(self, verdict: Verdict, silent: tuple[NodeId, ...]) -> None:
        if self._asked.get(verdict.pid) is not verdict:
            return
        del self._asked[verdict.pid]
        if silent:
            log.warning("worker.apart", pid=verdict.pid, unreachable=silent)
        self._tell(verdict, silent)
