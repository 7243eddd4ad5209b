"""A storage is probed before the first write, and one that would lose checkpoints is refused."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from elasticd.checkpoint.format.layout import TRIALS
from elasticd.checkpoint.storage.bucket import Data, ListedObject, NeedsLength, ObjectMissing
from elasticd.checkpoint.storage.retry import RetryingBucket, RetryPolicy
from elasticd.checkpoint.storage.s3_put import LARGE_BYTES
from elasticd.checkpoint.storage.storage_probe import ProbedBucket, StorageFault, fault_of
from elasticd.errors import Refused, Unavailable

FRAME = b"2000\r\n%s\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"


class Odd:
    """A bucket in memory that does one thing wrong."""

    url = "s3://bucket/run"

    def __init__(self, fault: str = "", *, can_send_plain: bool = True) -> None:
        self.fault, self.can_send_plain = fault, can_send_plain
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self.fails = 0
        """So many writes fail as if the storage did not answer."""

    def send_plain(self) -> bool:
        if self.can_send_plain and self.fault in ("framed", "length"):
            self.fault = ""
            return True
        return False

    def create(self, name: str, data: Data) -> bool:
        self._may_write()
        with self.lock:
            is_taken = name in self.objects and self.fault != "overwrites"
            if not is_taken or self.fault == "writes all the same":
                self.objects[name] = self._stored(data)
        return not is_taken or self.fault == "says yes"

    def replace(self, name: str, data: Data) -> None:
        self._may_write()
        self.objects[name] = self._stored(data)

    def read(self, name: str, limit_bytes: int) -> bytes:
        if name not in self.objects or self.fault == "gone":
            raise ObjectMissing(name)
        return self.objects[name][: limit_bytes + 1]

    def read_into(self, name: str, start: int, place: memoryview) -> int:
        if self.fault == "ranges":
            start = 0
        data = self.read(name, 1 << 30)[start : start + len(place)]
        place[: len(data)] = data
        return len(data)

    def delete(self, names: Iterable[str]) -> None:
        if self.fault == "keeps":
            raise Refused("nothing may be deleted")
        for name in names:
            self.objects.pop(name, None)

    def list(self, prefix: str, limit: int, keep: Callable[[str], bool]) -> list[ListedObject]:
        return []

    def _may_write(self) -> None:
        if self.fails:
            self.fails -= 1
            raise Unavailable("no answer")
        if self.fault == "length":
            raise NeedsLength("411")

    def _stored(self, data: Data) -> bytes:
        if self.fault == "framed":
            return FRAME % bytes(data)
        return bytes(len(data)) if self.fault == "zeros" else bytes(data)


FAULTS = {
    "": None,
    "overwrites": StorageFault.OVERWRITES,
    "writes all the same": StorageFault.OVERWRITES,
    "says yes": StorageFault.OVERWRITES,
    "framed": StorageFault.FRAMED,
    "length": StorageFault.NEEDS_LENGTH,
    "zeros": StorageFault.GARBLED,
    "gone": StorageFault.GARBLED,
    "ranges": StorageFault.GARBLED,
    "keeps": None,
}


@pytest.mark.parametrize(("fault", "found"), FAULTS.items())
def test_what_a_storage_does_wrong_is_found(fault: str, found: StorageFault | None) -> None:
    """And nothing of the trial stays, where it may be deleted."""
    bucket = Odd(fault)
    assert fault_of(bucket, 100) is found
    assert fault == "keeps" or not bucket.objects


@pytest.mark.parametrize("fault", ["overwrites", "says yes", "zeros", "gone", "ranges"])
def test_storage_that_would_lose_checkpoints_is_never_written_to(fault: str) -> None:
    """In one sentence that says what it does, to every writer of the process."""
    bucket = Odd(fault)
    probed = ProbedBucket(bucket)
    for write in (lambda: probed.create("a", b"1"), lambda: probed.replace("a", b"1")) * 2:
        with pytest.raises(Refused, match=r"s3://bucket/run .*Give another --checkpoint\.$"):
            write()
    assert not bucket.objects


@pytest.mark.parametrize("fault", ["framed", "length"])
def test_framing_is_left_out_where_the_server_does_not_know_it(fault: str) -> None:
    """By itself, and that is said once; where it cannot be left out the server is refused."""
    probed = ProbedBucket(Odd(fault))
    said: list[str] = []
    probed.say = said.append
    assert probed.create("a", b"one") and not probed.create("a", b"two")
    assert probed.read("a", 10) == b"one"
    (sentence,) = said
    assert '"request_checksum_calculation": "when_required"' in sentence
    with pytest.raises(Refused, match=str(FAULTS[fault])[:20]):
        ProbedBucket(Odd(fault, can_send_plain=False)).create("a", b"one")


def test_framing_does_not_hide_that_it_overwrites_too() -> None:
    """s3rver does both."""
    bucket = Odd("framed")
    send_plain = bucket.send_plain

    def and_then() -> bool:
        is_done = send_plain()
        bucket.fault = "overwrites"
        return is_done

    bucket.send_plain = and_then  # type: ignore[method-assign]
    with pytest.raises(Refused, match="If-None-Match"):
        ProbedBucket(bucket).create("a", b"one")


def test_trial_is_made_once_and_before_the_first_write() -> None:
    """Reading and deleting need none; of many writers one tries and the others wait for it."""
    bucket = Odd()
    seen: list[str] = []
    create = bucket.create

    def watched(name: str, data: Data) -> bool:
        seen.append(name)
        return create(name, data)

    bucket.create = watched  # type: ignore[method-assign]
    probed = ProbedBucket(bucket)
    with pytest.raises(ObjectMissing):
        probed.read("a", 1)
    probed.delete(["a"])
    assert seen == []
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda number: probed.create(f"log/{number}", b"x"), range(8)))
    trials = [name for name in seen if name.startswith(TRIALS)]
    assert len(trials) == 2 and seen[:2] == trials and trials[0] == trials[1]
    for number in range(2):
        assert probed.create(f"large/{number}", bytes(LARGE_BYTES))
    assert len([name for name in seen if name.startswith(TRIALS)]) == 4, "a way of its own"


def test_storage_that_does_not_answer_is_tried_again() -> None:
    """As any request is; it says nothing of what the storage does."""
    bucket = Odd()
    bucket.fails = 3
    policy = RetryPolicy(first_s=0.001, most_s=0.002, limit_s=100.0)
    assert RetryingBucket(ProbedBucket(bucket), policy, sleep=lambda s: None).create("a", b"x")
    assert bucket.objects == {"a": b"x"}
