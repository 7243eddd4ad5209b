"""Restarts the private etcd of a run when it ends; the workers go on, and no record is lost."""

import time
from collections.abc import Callable
from typing import Protocol

from elasticd.control.local_run.launch import is_dead
from elasticd.errors import EnvironmentProblem, Unavailable

__all__ = ["EtcdGuard"]

RESTARTS = 5
WELL_S = 600.0
"""An etcd that ran for this time is well: the starts before it do not count any more."""
PAUSE_S = 2.0
"""The pause after a start that failed."""


class Etcd(Protocol):
    """The etcd that the guard restarts; `elasticd.store.private_etcd` has the real one."""

    @property
    def pid(self) -> int: ...
    @property
    def ending(self) -> str: ...
    @property
    def is_tight(self) -> bool: ...
    def restart(self) -> None: ...


class EtcdGuard:
    """Restarts etcd. Call the guard often, from the thread that started etcd."""

    def __init__(
        self,
        etcd: Etcd,
        note: Callable[[str], None],
        *,
        is_ended: Callable[[int], bool] = is_dead,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`note` gets a sentence for people, and never the same sentence twice in a row."""
        self._etcd, self._note, self._is_ended, self._now_s = etcd, note, is_ended, now_s
        self._left = RESTARTS
        self._not_before_s = 0.0
        self._tried_s = now_s()
        self._said = ""

    def __call__(self) -> None:
        """Start etcd again if it has ended.

        Raises: EnvironmentProblem: etcd ends again and again, and the disk is not full.
        """
        if not self._is_ended(self._etcd.pid) or self._now_s() < self._not_before_s:
            return
        why, is_tight = self._etcd.ending, self._etcd.is_tight
        if not is_tight:
            # A full disk does not count as a try: somebody may free space at any time.
            if self._now_s() - self._tried_s >= WELL_S:
                self._left = RESTARTS
            if not self._left:
                raise EnvironmentProblem(f"The private etcd ends again and again ({why}).")
            self._left -= 1
        self._tried_s = self._now_s()
        try:
            self._etcd.restart()
        except Unavailable as exc:
            self._not_before_s = self._now_s() + PAUSE_S
            self._tell(
                f"the private etcd ended ({why}) and cannot be started again, the workers go on "
                f"until --isolation-limit: {exc}"
            )
        else:
            self._said = ""
            self._tell(f"the private etcd ended ({why}) and is started again")
            self._said = ""

    def _tell(self, sentence: str) -> None:
        if sentence != self._said:
            self._said = sentence
            self._note(sentence)
