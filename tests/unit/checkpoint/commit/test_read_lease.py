"""Who reads a checkpoint says so, and stops saying so."""

import json
import threading
import time
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.commit.read_lease import (
    GRACE_S,
    LEASE_S,
    ReadLease,
    is_over,
    leased,
    leases,
    reading,
)
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import LEASES
from elasticd.checkpoint.retention.deletion import remove
from elasticd.errors import EnvironmentProblem, Refused, Unavailable
from tests.fixtures.patience import patience_s
from tests.fixtures.store import wait_until
from tests.unit.checkpoint.meddling import Meddling
from tests.unit.checkpoint.stock_case import Maker


def test_a_lease_stands_while_somebody_reads_and_is_gone_afterwards(tmp_path: Path) -> None:
    """Two readers have two; an exception ends one as well."""
    maker = Maker.of(tmp_path, steps=3)
    with reading(maker.bucket, 2) as is_held:
        assert is_held
        with pytest.raises(ZeroDivisionError), reading(maker.bucket, 3):
            print(1 // (len(leased(maker.bucket)) - 2))
        assert leased(maker.bucket) == {2}
    assert leases(maker.bucket) == []


def test_a_lease_counts_for_an_hour_after_its_time() -> None:
    """Two hosts' clocks differ, and to keep too long costs only space."""
    lease = ReadLease(name="leases/a.json", number=1, until_unix_s=1000.0)
    assert not is_over(lease, 1000.0 + GRACE_S)
    assert is_over(lease, 1001.0 + GRACE_S)


def test_a_long_reader_renews(tmp_path: Path) -> None:
    """Its time moves on, and an outage in between does not end it."""
    maker = Maker.of(tmp_path, steps=2)
    written = threading.Semaphore(0)
    count = 0

    def before(verb: str, name: str) -> None:
        nonlocal count
        if verb == "replace":
            count += 1
            written.release()
            if count == 2:
                raise Unavailable("an outage")

    meddled = Meddling(maker.bucket, before)
    with reading(meddled, 2, renew_s=0.01):
        first = leases(maker.bucket)[0].until_unix_s
        for _ in range(5):
            assert written.acquire(timeout=patience_s(30.0))
        # The fifth was about to be written when it was counted.
        wait_until(lambda: leases(maker.bucket)[0].until_unix_s > first)
    assert leases(maker.bucket) == []


def test_a_renewal_that_comes_too_late_takes_itself_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hung while the reader ended, and came through afterwards."""
    monkeypatch.setattr("elasticd.checkpoint.commit.read_lease.END_S", 0.0)
    maker = Maker.of(tmp_path, steps=2)
    hangs, goes_on, deletions = threading.Event(), threading.Event(), threading.Semaphore(0)
    count = 0

    def before(verb: str, name: str) -> None:
        nonlocal count
        if verb == "replace":
            count += 1
            if count == 2:
                hangs.set()
                assert goes_on.wait(patience_s(30.0))

    class Counted(Meddling):
        def delete(self, names: object) -> None:
            super().delete(names)  # type: ignore[arg-type]
            deletions.release()

    with reading(Counted(maker.bucket, before), 2, renew_s=0.01):
        assert hangs.wait(patience_s(30.0))
    assert deletions.acquire(timeout=patience_s(30.0))
    goes_on.set()
    assert deletions.acquire(timeout=patience_s(30.0))
    assert leases(maker.bucket) == []


def test_a_checkpoint_that_was_given_up_before_the_lease_is_not_read(tmp_path: Path) -> None:
    """The reader is told to take another, and leaves no lease."""
    maker = Maker.of(tmp_path, steps=4)
    remove(maker.bucket, CommitLog(maker.bucket), [2])
    with pytest.raises(Damaged, match=r"Checkpoint 2 .* given up"), reading(maker.bucket, 2):
        raise AssertionError("it must not be read")
    assert leases(maker.bucket) == []


@pytest.mark.parametrize("error", [Refused("read only"), EnvironmentProblem("disk full")])
def test_who_may_not_write_reads_without_a_lease(tmp_path: Path, error: Exception) -> None:
    """A full disk or a read-only mount must not prevent a restore."""
    maker = Maker.of(tmp_path, steps=2)

    def before(verb: str, name: str) -> None:
        if verb == "replace":
            raise error

    with reading(Meddling(maker.bucket, before), 2) as is_held:
        assert not is_held
    assert leases(maker.bucket) == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "1", '{"number": "2", "until_unix_s": 9e9}', '{"number": 2}',
     '{"number": true, "until_unix_s": 9e9}', "[" * 900],
)  # fmt: skip
def test_a_lease_that_cannot_be_read_holds_nothing(tmp_path: Path, text: str) -> None:
    """Leases are written whole, so it is none of ours; by its age it can be swept."""
    maker = Maker.of(tmp_path, steps=2)
    maker.bucket.replace(f"{LEASES}/x.json", text.encode())
    assert leased(maker.bucket) <= {0}
    (found,) = leases(maker.bucket)
    assert abs(found.until_unix_s - time.time() - LEASE_S) < 60


def test_a_lease_is_what_the_format_says(tmp_path: Path) -> None:
    """Other programs may hold one too."""
    maker = Maker.of(tmp_path, steps=2)
    with reading(maker.bucket, 3):
        (path,) = (tmp_path / LEASES).iterdir()
        said = json.loads(path.read_text())
    assert said.keys() == {"number", "until_unix_s"} and said["number"] == 3
    assert 0 < said["until_unix_s"] - time.time() <= LEASE_S
