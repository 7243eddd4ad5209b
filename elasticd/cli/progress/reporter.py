"""Asks the agents of a job for its progress, and shows the progress, on a separate thread.

So no other code that follows the job waits for an agent. In a terminal the thread asks every two
seconds, which costs the agent less than a thousandth of a core; otherwise it prints one line a
minute.
"""

import time
from collections.abc import Callable, Mapping
from threading import Event, Lock, Thread

from elasticd.cli.progress.part import LinePart
from elasticd.cli.progress.sentence import progress_parts
from elasticd.cli.progress.speed import Speed, SpeedEstimator
from elasticd.control.follow import JobEnded, Waiting, WorldFormed
from elasticd.control.local_run.session import RunNews
from elasticd.records.account.progress import RankProgress
from elasticd.records.ids import NodeId
from elasticd.records.member import Node
from elasticd.records.world import World

__all__ = ["Reporter"]

LIVE_S = 2.0
ASK_S = 10.0
"""The period of asking without a terminal, so that a rate is known when a line is due."""
LINE_S = 60.0
GOODPUT_S = 5.0
"""The period of reading the goodput: the node of rank 0 writes its account to etcd that often. In
the first minute the goodput changes fast, and a value that is half a minute old is wrong."""
JOIN_S = 0.2

AskRanks = Callable[[World, Mapping[NodeId, Node]], tuple[RankProgress, ...]]
"""Returns the ranks of the first node that answers; `elasticd.control.progress` implements it."""
Show = Callable[[list[LinePart], RankProgress | None, Speed], None]


class Reporter:
    """Reports progress. `receive` takes the news of the job; `show` gets the parts of the line.

    `goodput` reads the share of all slots' time that trained so far; the call may block.
    """

    def __init__(
        self,
        ask: AskRanks,
        show: Show,
        hide: Callable[[], None],
        *,
        is_live: bool,
        goodput: Callable[[], float | None] = lambda: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._show, self._hide = ask, show, hide
        self._is_live, self._now_s = is_live, now_s
        self._read_goodput = goodput
        self._goodput: float | None = None
        self._goodput_due_s = now_s()
        self._lock = Lock()
        self._formed: WorldFormed | None = None
        self._pace = SpeedEstimator()
        self._due_s = now_s() + LINE_S
        self._is_over = Event()
        self._thread = Thread(target=self._run, name="progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def receive(self, news: RunNews) -> None:
        """Take in news of the job."""
        if isinstance(news, WorldFormed | Waiting | JobEnded):
            with self._lock:
                self._formed = news if isinstance(news, WorldFormed) else None
            if not isinstance(news, WorldFormed):
                self._hide()

    def stop(self) -> None:
        """Stop showing progress, without waiting for the answer of an agent."""
        self._is_over.set()
        with self._lock:
            self._formed = None
        self._hide()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def turn(self) -> None:
        """Ask an agent once, and show the answer if a line is due."""
        with self._lock:
            formed = self._formed
        if formed is None:
            return
        ranks = self._ask(formed.world, formed.nodes)
        now_s = self._now_s()
        first = ranks[0] if ranks else None
        speed = self._pace.take(first, now_s) if first is not None else Speed()
        if now_s >= self._goodput_due_s:
            self._goodput, self._goodput_due_s = self._read_goodput(), now_s + GOODPUT_S
        with self._lock:
            is_current = self._formed is formed and not self._is_over.is_set()
            if not is_current or (not self._is_live and now_s < self._due_s):
                return
            self._due_s = now_s + LINE_S
            parts = progress_parts(formed.world, first, speed, self._goodput)
            self._show(parts, first, speed)

    def _run(self) -> None:
        pause_s = LIVE_S if self._is_live else ASK_S
        while not self._is_over.wait(pause_s):
            self.turn()
