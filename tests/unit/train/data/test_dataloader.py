"""Reader: data workers read ahead, count for nothing, and end when they are told."""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from elasticd.train.data import dataloader
from elasticd.train.data.ledger import Ledger
from elasticd.train.data.loader import loader_core_of
from elasticd.train.interrupt import may_be_left
from tests.fixtures.patience import patience_s
from tests.unit.train.data.loader_case import Numbers, Watch, loader_of


class _Slow:
    """Each sample takes longer than a test may."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        if index >= 8:
            time.sleep(60)
        return index


@pytest.mark.parametrize("persistent", [False, True])
def test_a_new_world_ends_data_workers_that_are_busy(
    persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They sleep inside of a sample; torch alone would wait five seconds for each."""
    monkeypatch.setattr(dataloader, "_TERM_S", patience_s(20.0))
    loader = loader_of(
        _Slow(), 4, shuffle=False, num_workers=2, prefetch_factor=2, persistent_workers=persistent
    )
    before = set(multiprocessing.active_children())
    iterator = iter(loader)
    assert [next(iterator), next(iterator)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    workers = set(multiprocessing.active_children()) - before
    assert len(workers) == 2
    loader_core_of(loader).commit()
    loader_core_of(loader).place(0, 1, Watch())
    assert not any(worker.is_alive() for worker in workers)
    # By SIGTERM at once, neither by SIGKILL nor after torch's patience.
    assert {worker.exitcode for worker in workers} <= {0, -15}
    assert (loader.epoch, loader.consumed) == (0, 8)


@pytest.mark.parametrize("persistent", [False, True])
def test_end_of_data_workers_is_not_left_in_the_middle(
    persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the wait for a batch is interrupted, that takes longer than the next signal does."""
    seen: list[bool] = []

    def end(stream: Any) -> None:
        seen.append(may_be_left(sys._getframe()))
        ended(stream)

    ended = dataloader._end
    monkeypatch.setattr(dataloader, "_end", end)
    loader = loader_of(Numbers(40), 4, num_workers=1, persistent_workers=persistent)
    next(iter(loader))
    loader_core_of(loader)._reader.close()
    assert seen == [False]


@pytest.mark.parametrize("persistent", [False, True])
def test_only_what_was_delivered_counts_with_data_workers(persistent: bool) -> None:
    """They read ahead; worlds of other sizes still see each sample once, epoch after epoch."""
    before = set(multiprocessing.active_children())
    options = {"num_workers": 2, "prefetch_factor": 2, "persistent_workers": persistent}
    loader = loader_of(Numbers(41), 6, **options)
    counts: Counter[int] = Counter()
    ledger = Ledger()
    for _ in range(2):
        iterator = iter(loader)
        for _ in range(3):
            counts.update(next(iterator))
        ledger.take(loader_core_of(loader).commit())
        next(iterator)
        loader_core_of(loader).place(0, 1, Watch())
        for batch in loader:
            counts.update(batch)
        ledger.take(loader_core_of(loader).commit())
    assert counts == Counter(dict.fromkeys(range(41), 2))
    assert (ledger.samples, ledger.repeated, ledger.skipped) == (82, 0, 0)
    loader_core_of(loader).place(0, 1, Watch())
    assert set(multiprocessing.active_children()) <= before


def test_persistent_data_workers_stay_over_the_end_of_an_epoch() -> None:
    """And end with the generation."""
    loader = loader_of(_Pid(), 4, num_workers=1, persistent_workers=True)
    pids = {pid for _ in range(2) for batch in loader for pid in batch}
    assert len(pids) == 1
    loader_core_of(loader).place(0, 1, Watch())
    assert len({pid for batch in loader for pid in batch} | pids) == 2
    loader_core_of(loader).place(0, 1, Watch())


class _Pid:
    """Each sample is the process that fetched it."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        return os.getpid()


class _Failing(Numbers):
    """One sample fails once."""

    def __getitem__(self, index: int) -> int:
        flag = Path(os.environ["LOADER_TEST_FLAG"])
        if index == 5 and not flag.exists():
            flag.touch()
            raise ValueError("damaged")
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_failed_comes_again(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch alone would go on with the batch after it, and its samples would be lost."""
    monkeypatch.setenv("LOADER_TEST_FLAG", str(tmp_path / "flag"))
    loader = loader_of(_Failing(12), 4, shuffle=False, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(ValueError, match="damaged"):
        next(iterator)
    assert list(loader) == [[4, 5, 6, 7], [8, 9, 10, 11]]


class _Exiting(Numbers):
    """One sample ends the process that fetches it, once."""

    def __getitem__(self, index: int) -> int:
        flag = Path(os.environ["LOADER_TEST_FLAG"])
        if index == 5 and not flag.exists():
            flag.touch()
            os._exit(3)
        return index


def test_persistent_data_workers_are_replaced_when_one_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the script's to see; the loop after it finds new workers."""
    monkeypatch.setenv("LOADER_TEST_FLAG", str(tmp_path / "flag"))
    loader = loader_of(_Exiting(12), 4, shuffle=False, num_workers=2, persistent_workers=True)
    batches: list[list[int]] = []
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        batches.extend(iter(loader))
    batches.extend(loader)
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    loader_core_of(loader).place(0, 1, Watch())


def _hold_a_busy_worker(pipe: Connection) -> None:
    loader = loader_of(_Slow(), 4, shuffle=False, num_workers=1)
    next(iter(loader))
    pipe.send([process.pid for process in multiprocessing.active_children()])
    time.sleep(60)


def test_data_workers_do_not_outlive_a_parent_that_was_killed() -> None:
    """They hold copies of its sockets, and torch would notice only after the sample."""
    ours, theirs = multiprocessing.Pipe()
    parent = multiprocessing.get_context("fork").Process(target=_hold_a_busy_worker, args=(theirs,))
    parent.start()
    (pid,) = ours.recv()
    parent.kill()
    parent.join()
    stat = Path(f"/proc/{pid}/stat")
    until_s = time.monotonic() + patience_s(10.0)
    while time.monotonic() < until_s:  # its end is not ours to wait for
        state = ""
        with contextlib.suppress(OSError):
            state = stat.read_text().rpartition(")")[2].split()[0]
        if state in ("", "Z", "X"):
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    pytest.fail(f"data worker {pid} lives on")
