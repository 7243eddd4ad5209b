"""A save that dies at any of its steps leaves only whole checkpoints, and can be done again."""

import secrets
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from elasticd.checkpoint.commit.committer import CommitOutcome
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.storage.bucket import Bucket, Data, ListedObject
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket
from tests.integration.checkpoint.saving_case import (
    assert_whole,
    committer,
    load,
    save,
    values,
)

T = TypeVar("T")

BEFORE = Snapshot(run=1, generation=1, step=10)
DYING = Snapshot(run=1, generation=2, step=20)
AFTER = Snapshot(run=1, generation=3, step=30)


class Died(BaseException):
    """The process is gone; nothing catches that."""


class Mortal:
    """A bucket whose user dies at its call of this number, before or after the effect."""

    def __init__(self, inner: Bucket, call: int, *, has_effect: bool) -> None:
        self.inner, self.call, self.has_effect = inner, call, has_effect
        self.calls = 0

    @property
    def url(self) -> str:
        return self.inner.url

    def create(self, name: str, data: Data) -> bool:
        return self._once(lambda: self.inner.create(name, data))

    def replace(self, name: str, data: Data) -> None:
        self._once(lambda: self.inner.replace(name, data))

    def read(self, name: str, limit_bytes: int) -> bytes:
        return self._once(lambda: self.inner.read(name, limit_bytes))

    def read_into(self, name: str, start: int, place: memoryview) -> int:
        return self._once(lambda: self.inner.read_into(name, start, place))

    def delete(self, names: Iterable[str]) -> None:
        self._once(lambda: self.inner.delete(names))

    def list(self, prefix: str, limit: int, keep: Callable[[str], bool]) -> list[ListedObject]:
        return self._once(lambda: self.inner.list(prefix, limit, keep))

    def _once(self, effect: Callable[[], T]) -> T:
        self.calls += 1
        if self.calls > self.call or (self.calls == self.call and not self.has_effect):
            raise Died
        done = effect()
        if self.calls == self.call:
            raise Died
        return done


def prepared() -> Bucket:
    """A bucket with one checkpoint."""
    bucket = FsspecBucket(f"memory://{secrets.token_hex(8)}", {})
    assert committer(bucket).open(1, 0) == 1
    assert save(bucket, BEFORE) is CommitOutcome.COMMITTED
    return bucket


def a_save(bucket: Bucket) -> None:
    committer(bucket).open(DYING.generation, BEFORE.step)
    save(bucket, DYING)


def calls_of_a_save() -> int:
    mortal = Mortal(prepared(), 10**9, has_effect=True)
    a_save(mortal)
    return mortal.calls


@pytest.mark.parametrize("has_effect", [False, True], ids=["before", "after"])
def test_death_at_any_call_leaves_only_whole_checkpoints(has_effect: bool) -> None:
    """And another writer brings the same step to its end, or the next one."""
    calls = calls_of_a_save()
    assert calls > 10
    for call in range(1, calls + 1):
        bucket = prepared()
        with pytest.raises(Died):
            a_save(Mortal(bucket, call, has_effect=has_effect))
        found = assert_whole(bucket)
        assert found in ([BEFORE], [BEFORE, DYING]), f"death at call {call}"
        assert load(bucket) == (found[-1], values(found[-1]))

        committer(bucket).open(DYING.generation, BEFORE.step)
        again = save(bucket, DYING, writer="11111111")
        assert again is (CommitOutcome.ALREADY if DYING in found else CommitOutcome.COMMITTED)
        committer(bucket).open(AFTER.generation, DYING.step)
        assert save(bucket, AFTER, writer="22222222") is CommitOutcome.COMMITTED
        assert assert_whole(bucket) == [BEFORE, DYING, AFTER]


def test_death_at_any_call_need_not_be_repaired_before_the_next_save() -> None:
    """What was left half done is in nobody's way."""
    for call in range(1, calls_of_a_save() + 1):
        bucket = prepared()
        with pytest.raises(Died):
            a_save(Mortal(bucket, call, has_effect=True))
        committer(bucket).open(AFTER.generation, BEFORE.step)
        assert save(bucket, AFTER, writer="22222222") is CommitOutcome.COMMITTED
        assert assert_whole(bucket)[-1] == AFTER


def test_death_after_the_entry_loses_nothing() -> None:
    """What the log took is durable, whoever dies next: the last call of a save is only a hint."""
    bucket = prepared()
    with pytest.raises(Died):
        a_save(Mortal(bucket, calls_of_a_save(), has_effect=False))
    assert load(bucket) == (DYING, values(DYING))
