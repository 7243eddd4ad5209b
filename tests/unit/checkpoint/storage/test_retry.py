"""Asking again: how long, how often, and what the answer means then."""

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.checkpoint.storage import retry
from elasticd.checkpoint.storage.bucket import Data, ListedObject, ObjectMissing, Throttled
from elasticd.checkpoint.storage.retry import RetryingBucket, RetryPolicy, pause_s
from elasticd.errors import EnvironmentProblem, Refused, Unavailable

POLICY = RetryPolicy(first_s=1.0, most_s=8.0, limit_s=100.0)


class Failing:
    """One object; the next calls fail with these errors, after their effect where so said."""

    url = "failing://"

    def __init__(self, *errors: Exception, has_effect: bool = False) -> None:
        self.errors, self.has_effect = list(errors), has_effect
        self.there: bytes | None = None
        self.calls = 0

    def _once(self) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)

    def create(self, name: str, data: Data) -> bool:
        is_new = self.there is None
        if is_new and (self.has_effect or not self.errors):
            self.there = bytes(data)
        self._once()
        return is_new

    def replace(self, name: str, data: Data) -> None:
        self._once()
        self.there = bytes(data)

    def read(self, name: str, limit_bytes: int) -> bytes:
        self._once()
        if self.there is None:
            raise ObjectMissing("There is none.")
        return self.there[: limit_bytes + 1]

    def read_into(self, name: str, start: int, place: memoryview) -> int:
        self._once()
        return 0

    def delete(self, names: Iterable[str]) -> None:
        found = list(names)
        self._once()
        assert found == ["a", "b"]

    def list(self, prefix: str, limit: int, keep: Callable[[str], bool]) -> list[ListedObject]:
        self._once()
        return []


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(retry, "time", made)
    return made


def retrying(inner: Failing, clock: Clock, draw: float = 1.0) -> RetryingBucket:
    return RetryingBucket(inner, POLICY, sleep=clock.sleep, draw=lambda: draw)


@given(st.integers(0, 10**6), st.floats(0, 300), st.floats(0, 1))
def test_pause_is_drawn_below_a_limit_that_doubles(
    attempt: int, after_s: float, draw: float
) -> None:
    """And never shorter than what the service asked for."""
    found = pause_s(POLICY, attempt, after_s, draw)
    assert after_s <= found <= after_s + min(8.0, 2.0 ** min(attempt, 10))


def test_pauses_double_up_to_the_most(clock: Clock) -> None:
    """With the longest draws."""
    inner = Failing(*[Unavailable("x")] * 6)
    retrying(inner, clock).replace("a", b"")
    assert clock.pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_what_the_service_asked_for_is_the_least(clock: Clock) -> None:
    """Whatever was drawn."""
    inner = Failing(Throttled("x", after_s=30.0), Unavailable("y"))
    retrying(inner, clock, draw=0.0).replace("a", b"")
    assert clock.pauses == [30.0, 0.0]


def test_no_try_begins_after_the_limit(clock: Clock) -> None:
    """The last error is passed on, and each was heard of."""
    heard: list[Unavailable] = []
    inner = Failing(*[Unavailable(str(number)) for number in range(1000)])
    bucket = RetryingBucket(inner, POLICY, sleep=clock.sleep, draw=lambda: 1.0, failed=heard.append)
    with pytest.raises(Unavailable) as caught:
        bucket.replace("a", b"")
    assert sum(clock.pauses) <= POLICY.limit_s
    assert len(heard) == inner.calls and caught.value is heard[-1]
    assert 10 < inner.calls < 20


def test_patience_beyond_the_limit_is_not_waited_for(clock: Clock) -> None:
    """It is told at once."""
    inner = Failing(Throttled("x", after_s=POLICY.limit_s + 1))
    with pytest.raises(Throttled):
        retrying(inner, clock).replace("a", b"")
    assert clock.pauses == [] and inner.calls == 1


@pytest.mark.parametrize("error", [ObjectMissing("x"), Refused("x"), EnvironmentProblem("x")])
def test_what_time_does_not_heal_is_not_tried_again(clock: Clock, error: Exception) -> None:
    """Nobody waits for a permission."""
    inner = Failing(error)
    with pytest.raises(type(error)):
        retrying(inner, clock).read("a", 1)
    assert inner.calls == 1


def test_every_verb_is_tried_again(clock: Clock) -> None:
    """Names that are given one by one are there the second time too."""
    bucket = retrying(inner := Failing(), clock)
    inner.there = b"x"
    for use in (
        lambda: bucket.create("a", b""),
        lambda: bucket.replace("a", b"x"),
        lambda: bucket.read("a", 1),
        lambda: bucket.read_into("a", 0, memoryview(b"")),
        lambda: bucket.delete(iter(["a", "b"])),
        lambda: bucket.list("a", 1, lambda name: True),
    ):
        inner.errors, inner.calls = [Unavailable("x")], 0
        use()
        assert inner.calls >= 2


def test_create_that_took_effect_before_it_failed_counts_as_ours(clock: Clock) -> None:
    """Else a commit that is in the log would be called somebody else's."""
    inner = Failing(Unavailable("x"), has_effect=True)
    assert retrying(inner, clock).create("a", b"mine")


def test_create_that_failed_while_another_wrote_does_not_count_as_ours(clock: Clock) -> None:
    """A longer object that begins as ours is another's too."""
    for other in (b"theirs", b"mine and more", b"min", b""):
        inner = Failing(Unavailable("x"))
        inner.there = other
        assert not retrying(inner, clock).create("a", b"mine")


def test_create_of_what_was_there_before_is_not_ours(clock: Clock) -> None:
    """Though it is the same: without a failed try it cannot have been us."""
    inner = Failing()
    inner.there = b"mine"
    assert not retrying(inner, clock).create("a", b"mine")
