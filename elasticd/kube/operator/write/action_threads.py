"""Threads that carry out what one look decided; a write that hangs is not waited for.

Actions about one thing are done in order, several things at once, since each write waits for a
server. A write may hang for its whole time-out, as with a webhook of one namespace that does not
answer. Its thread is then left to it, and whatever else is about that thing waits for it alone:
the next looks go on with everything else, and hear how it went when it has ended.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Lock

from elasticd.errors import ElasticdError, Fenced, Unavailable
from elasticd.kube.api.failure import Busy, Failed
from elasticd.kube.decide.action import Action
from elasticd.kube.operator.counts import ActionOutcome
from elasticd.kube.operator.write.effect import Effects, group_of, is_to_etcd, word_of
from elasticd.telemetry.log import get_logger

__all__ = ["API", "ETCD", "LOOK_S", "ActionThreads", "Done", "server_of"]

API, ETCD = "the API server", "etcd"
THREADS = 8
"""How many things one look is at, at once."""
HUNG_THREADS = 32
"""How many more threads there are, in the places of those that hang."""
SLOW_THREADS = 4
"""How many of the things that hung before are tried at once, at each of the two servers."""
QUICK_S = 2.0
"""What goes well within this time does not hang any more."""
SLOW_LIMIT = 4096
"""How many of those are remembered; beyond that all are forgotten at once."""
LOOK_S = 5.0
"""How long one look begins with new actions, and waits for those that it began. What is left then
waits for the next one, so that a slow API server delays no news, nor takes the lead away."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class Done:
    """How an action went."""

    action: Action
    outcome: ActionOutcome
    why: str = ""
    retry_after_s: float = 0.0
    is_alone: bool = False
    """True if the server failed at this action, and may do others."""

    @property
    def ends_its_group(self) -> bool:
        """Return whether what else was to be done about the same thing waits."""
        return self.outcome in (ActionOutcome.OUTDATED, ActionOutcome.UNAVAILABLE)


@dataclass(slots=True)
class _Look:
    """What one look has to do; the lock of the threads guards it."""

    effects: Effects
    groups: dict[str, list[Action]]
    until_s: float
    waiting: deque[str] = field(default_factory=deque)
    running: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    """The servers that did not answer."""
    is_over: bool = False


class ActionThreads:
    """One thread calls it, until it is closed."""

    def __init__(
        self, wake: Callable[[], None], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`wake` is called when something has ended that a look did not wait for."""
        self._wake, self._now_s = wake, now_s
        self._lock = Lock()
        self._running: set[str] = set()
        self._slow: dict[str, str] = {}
        """What hung before, and the server at which it was tried last; it is not waited for, until
        it went well again. What was tried last stands last, so that each of them has its turn."""
        self._ended: list[Done] = []
        self.late: set[str] = set()
        """What the last look had no time for: it comes first in the next one."""
        self._threads = ThreadPoolExecutor(THREADS + HUNG_THREADS, thread_name_prefix="effect")

    def take_ended(self) -> list[Done]:
        """Return how those went that ended after the look in which they were begun."""
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def carry_out(self, effects: Effects, actions: Iterable[Action]) -> list[Done]:
        """Carry actions out; return how those went that have ended, of earlier looks too."""
        groups: dict[str, list[Action]] = {}
        for action in actions:
            groups.setdefault(group_of(action), []).append(action)
        look = _Look(effects, groups, self._now_s() + LOOK_S)
        with self._lock:
            slow = self._choose(look)
        for about in slow:
            self._threads.submit(self._serve_one, look, about)
        count = min(THREADS, len(look.waiting))
        served = [self._threads.submit(self._serve, look) for _ in range(count)]
        wait(served, timeout=LOOK_S)
        for each in served:
            each.cancel()
        with self._lock:
            look.is_over = True
            if len(self._slow) > SLOW_LIMIT:
                self._slow.clear()
            for about in sorted(look.running):
                self._slow.setdefault(about, _server_of_all(look.groups[about]))
            self.late = look.late | set(look.waiting)
            look.waiting.clear()
        return self.take_ended()

    def close(self) -> None:
        """Begin with nothing more; what hangs ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- private ------------------------------------------------------------------------------

    def _choose(self, look: _Look) -> list[str]:
        """Queue what is waited for; return what is begun beside it."""

        # A node may have half a minute to go: its drain waits for no answer of the API server.
        def rank(about: str) -> tuple[bool, bool]:
            return server_of(look.groups[about][0]) != ETCD, about not in self.late

        # What ended while it was decided is not known to who decided, and would be done again.
        unheard = {group_of(one.action) for one in self._ended}
        look.late |= unheard & look.groups.keys()
        free = [
            about
            for about in sorted(look.groups, key=rank)
            if about not in self._running and about not in unheard
        ]
        look.waiting.extend(about for about in free if about not in self._slow)
        hung = {about: _server_of_all(look.groups[about]) for about in free if about in self._slow}
        slow = [*self._slow_turn(API, hung), *self._slow_turn(ETCD, hung)]
        for about in slow:
            del self._slow[about]
            self._slow[about] = hung[about]
        self._running.update(slow)
        return slow

    def _slow_turn(self, server: str, hung: Mapping[str, str]) -> list[str]:
        """Return what hung before and is tried at this server now: what was not for longest comes
        first, and a server that hangs takes no room of the other's.
        """
        busy = sum(about in self._running for about, at in self._slow.items() if at == server)
        room = max(0, SLOW_THREADS - busy)
        return [about for about in self._slow if hung.get(about) == server][:room]

    def _serve(self, look: _Look) -> None:
        """Do one thing after the other, as long as the look lasts."""
        while True:
            with self._lock:
                if look.is_over or not look.waiting or self._now_s() >= look.until_s:
                    return
                about = look.waiting.popleft()
                look.running.add(about)
                self._running.add(about)
            self._serve_one(look, about)

    def _serve_one(self, look: _Look, about: str) -> None:
        ended: list[Done] = []
        began_s = self._now_s()
        try:
            self._do(look, about, ended)
        finally:
            with self._lock:
                self._running.discard(about)
                look.running.discard(about)
                is_quick = self._now_s() < began_s + QUICK_S
                # What did nothing, as its time or its server was gone, has not gone well.
                is_whole = len(ended) == len(look.groups[about])
                if is_quick and is_whole and all(not one.ends_its_group for one in ended):
                    self._slow.pop(about, None)
                self._ended += ended
                is_late = look.is_over
            if is_late:
                self._wake()

    def _do(self, look: _Look, about: str, ended: list[Done]) -> None:
        for action in look.groups[about]:
            if self._now_s() >= look.until_s:
                look.late.add(about)
                return
            if server_of(action) not in look.away:
                ended.append(_done(look.effects, action, look.away))
                if ended[-1].ends_its_group:
                    return


def _server_of_all(group: Iterable[Action]) -> str:
    """Return etcd only if no action of a group waits for the API server."""
    return ETCD if all(server_of(action) == ETCD for action in group) else API


def server_of(action: Action) -> str:
    """Return to which server an action writes."""
    return ETCD if is_to_etcd(action) else API


# --- private ----------------------------------------------------------------------------------


def _done(effects: Effects, action: Action, away: set[str]) -> Done:
    """Do an action; note in `away` which server does not answer."""
    try:
        effects.carry_out(action)
    except Fenced as exc:
        return Done(action, ActionOutcome.OUTDATED, str(exc))
    except Failed as exc:
        return Done(action, ActionOutcome.UNAVAILABLE, str(exc), is_alone=True)
    except Unavailable as exc:
        away.add(server_of(action))
        after_s = exc.retry_after_s if isinstance(exc, Busy) else 0.0
        return Done(action, ActionOutcome.UNAVAILABLE, str(exc), after_s)
    except ElasticdError as exc:
        return Done(action, ActionOutcome.REFUSED, str(exc))
    except Exception as exc:  # A bug of ours about one thing must not stop what is about others.
        log.exception("action.broke", action=word_of(action), about=group_of(action))
        return Done(action, ActionOutcome.REFUSED, f"This operator cannot do it: {exc!r}.")
    return Done(action, ActionOutcome.DONE)
