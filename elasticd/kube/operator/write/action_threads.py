"""Threads that carry out the actions of one evaluation; it does not wait for a write that hangs.

The actions of one group (about one object, or one node) are done in order, and several groups at
once, since each write waits for a server. A write may hang for its whole time-out, for instance
with a webhook of one namespace that does not answer. Its thread then stays with that write, and
only the other actions of the group wait: the next evaluations go on with all other groups, and get
the outcome when the write has ended.
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
"""The number of groups that one evaluation serves at once."""
HUNG_THREADS = 32
"""The number of additional threads, which replace those that hang."""
SLOW_THREADS = 4
"""The number of groups with a write that hung before that are tried at once, for each of the two
servers."""
QUICK_S = 2.0
"""A group whose actions succeed within this time in seconds does not count as hung any more."""
SLOW_LIMIT = 4096
"""The limit for the number of groups that count as hung; beyond it all are forgotten at once."""
LOOK_S = 5.0
"""The time in seconds in which one evaluation begins new actions, and waits for these. The
remaining actions wait for the next evaluation, so that a slow API server neither delays
observations nor ends the lead."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of an action."""

    action: Action
    outcome: ActionOutcome
    why: str = ""
    retry_after_s: float = 0.0
    is_alone: bool = False
    """True if the server failed at this action alone, and may succeed at others."""

    @property
    def ends_its_group(self) -> bool:
        """Return whether the other actions of the same group must wait."""
        return self.outcome in (ActionOutcome.OUTDATED, ActionOutcome.UNAVAILABLE)


@dataclass(slots=True)
class _Look:
    """The groups of actions of one evaluation; the lock of the threads guards them."""

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
    """The threads for actions. One thread calls it, until it is closed."""

    def __init__(
        self, wake: Callable[[], None], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`wake` is called when an action has ended after the end of its evaluation."""
        self._wake, self._now_s = wake, now_s
        self._lock = Lock()
        self._running: set[str] = set()
        self._slow: dict[str, str] = {}
        """The groups that hung before, and the server of each. No evaluation waits for such a group
        until its actions succeed again. The group that was tried last is the last one here, so that
        each has its turn."""
        self._ended: list[Done] = []
        self.late: set[str] = set()
        """The groups for which the last evaluation had no time: they come first in the next one."""
        self._threads = ThreadPoolExecutor(THREADS + HUNG_THREADS, thread_name_prefix="effect")

    def take_ended(self) -> list[Done]:
        """Return the outcomes of actions that ended after the evaluation in which they began."""
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def carry_out(self, effects: Effects, actions: Iterable[Action]) -> list[Done]:
        """Carry actions out; return the outcomes that are known, also of earlier evaluations."""
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
        """Begin no more actions; writes that hang end without help."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- private ------------------------------------------------------------------------------

    def _choose(self, look: _Look) -> list[str]:
        """Queue the groups that this evaluation waits for; return those that begin beside them."""

        # A node may end in half a minute: its drain must not wait for an answer of the API server.
        def rank(about: str) -> tuple[bool, bool]:
            return server_of(look.groups[about][0]) != ETCD, about not in self.late

        # The decision did not know the outcomes that arrived during it, and would repeat these
        # actions.
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
        """Return the groups that hung before and are tried at this server now: the group whose last
        try is the oldest comes first, and a server that hangs takes no thread from the other
        server's groups.
        """
        busy = sum(about in self._running for about, at in self._slow.items() if at == server)
        room = max(0, SLOW_THREADS - busy)
        return [about for about in self._slow if hung.get(about) == server][:room]

    def _serve(self, look: _Look) -> None:
        """Serve one group after the other until the time of the evaluation is over."""
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
                # A group with actions left, because time was over or its server away, did not
                # succeed.
                is_whole = len(ended) == len(look.groups[about])
                if is_quick and is_whole and all(not one.ends_its_group for one in ended):
                    self._slow.pop(about, None)
                self._ended += ended
                is_overdue = look.is_over
            if is_overdue:
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
    """Return etcd only if no action of a group writes to the API server."""
    return ETCD if all(server_of(action) == ETCD for action in group) else API


def server_of(action: Action) -> str:
    """Return the server to which an action writes."""
    return ETCD if is_to_etcd(action) else API


# --- private ----------------------------------------------------------------------------------


def _done(effects: Effects, action: Action, away: set[str]) -> Done:
    """Do an action; note in `away` a server that does not answer."""
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
    except Exception as exc:  # A bug of ours in one action must not stop the others.
        log.exception("action.broke", action=word_of(action), about=group_of(action))
        return Done(action, ActionOutcome.REFUSED, f"This operator cannot do it: {exc!r}.")
    return Done(action, ActionOutcome.DONE)
