"""Retries for a limited time, with pauses that are drawn at random.

It uses full jitter between zero and a limit that doubles, as "Exponential Backoff And Jitter" (AWS
Architecture Blog, 2015) found best. If the service says how long to wait, the pause is at least
that long.
"""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from elasticd.checkpoint.storage.bucket import Bucket, Data, ListedObject, Throttled
from elasticd.errors import Unavailable

__all__ = ["RetryPolicy", "RetryingBucket", "pause_s"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    first_s: float = 0.1
    """The upper limit of the first pause; it doubles with each."""
    most_s: float = 10.0
    limit_s: float = 120.0
    """No try begins later than this after the first; then the error is passed on."""


def pause_s(policy: RetryPolicy, attempt: int, after_s: float, draw: float) -> float:
    """Return the pause in seconds after the failed attempt of this number (0 is the first). Pure.

    `draw` is from 0 to 1; `after_s` is what the service asked for.
    """
    return after_s + draw * min(policy.most_s, policy.first_s * 2.0 ** min(attempt, 60))


class RetryingBucket:
    """A `Bucket` that repeats a failed request where a repetition can help."""

    def __init__(
        self,
        inner: Bucket,
        policy: RetryPolicy,
        *,
        sleep: Callable[[float], object] = time.sleep,
        draw: Callable[[], float] = random.random,
        failed: Callable[[Unavailable], None] = lambda error: None,
    ) -> None:
        """`failed` is called for each try that failed."""
        self._inner, self._policy = inner, policy
        self._sleep, self._draw = sleep, draw
        self.failed = failed

    @property
    def url(self) -> str:
        return self._inner.url

    def create(self, name: str, data: Data) -> bool:
        attempts = 0

        def once() -> bool:
            nonlocal attempts
            attempts += 1
            return self._inner.create(name, data)

        is_new = self._again(once)
        if is_new or attempts == 1:
            return is_new
        # A try that seemed to fail may have been the one that wrote it.
        return self.read(name, len(data)) == bytes(data)

    def replace(self, name: str, data: Data) -> None:
        self._again(lambda: self._inner.replace(name, data))

    def read(self, name: str, limit_bytes: int) -> bytes:
        return self._again(lambda: self._inner.read(name, limit_bytes))

    def read_into(self, name: str, start: int, place: memoryview) -> int:
        return self._again(lambda: self._inner.read_into(name, start, place))

    def delete(self, names: Iterable[str]) -> None:
        every = tuple(names)
        self._again(lambda: self._inner.delete(every))

    def list(self, prefix: str, limit: int, keep: Callable[[str], bool]) -> list[ListedObject]:
        return self._again(lambda: self._inner.list(prefix, limit, keep))

    def _again(self, once: Callable[[], T]) -> T:
        begun_s, attempt = time.monotonic(), 0
        while True:
            try:
                return once()
            except Unavailable as exc:
                self.failed(exc)
                asked_s = exc.after_s if isinstance(exc, Throttled) else 0.0
                wait_s = pause_s(self._policy, attempt, asked_s, self._draw())
                if time.monotonic() - begun_s + wait_s > self._policy.limit_s:
                    raise
            self._sleep(wait_s)
            attempt += 1
