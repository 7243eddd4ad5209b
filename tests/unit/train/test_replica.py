"""Replicas that are compared, and the rank that is named."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from elasticd.train.interrupt import Interrupted
from elasticd.train.replica import ReplicaDiffers, Replicas, odd_ones_out


def compare(fingerprints: list[str], *, step: int = 10, every: int = 5) -> list[str]:
    """Let each rank compare in a thread of its own; returns what each raised."""
    store = HashStore()

    def one(rank: int) -> str:
        replicas = Replicas(
            store,
            rank=rank,
            size=len(fingerprints),
            every=every,
            fingerprint=lambda: fingerprints[rank],
            is_stale=lambda: False,
        )
        try:
            replicas.compare(step)
        except ReplicaDiffers as exc:
            return str(exc)
        return ""

    with ThreadPoolExecutor(len(fingerprints)) as pool:
        return list(pool.map(one, range(len(fingerprints))))


def test_equal_replicas_go_on() -> None:
    assert compare(["a", "a", "a"]) == ["", "", ""]


def test_the_odd_one_is_named_and_it_alone_raises() -> None:
    said = compare(["a", "a", "b", "a"])
    assert [bool(text) for text in said] == [False, False, True, False]
    assert "rank 2" in said[2] and "step 10" in said[2] and "other 3 of 4" in said[2]


def test_rank_0_may_be_the_odd_one() -> None:
    assert [bool(text) for text in compare(["b", "a", "a"])] == [True, False, False]


def test_nothing_is_compared_between_the_turns() -> None:
    assert compare(["a", "b"], step=11) == ["", ""]


def test_end_of_an_epoch_at_its_turn_is_not_compared_again() -> None:
    """It commits the same step once more; rank 0 would wait for what others have taken away."""
    store, size = HashStore(), 2
    prints = []

    def both_commits(rank: int) -> None:
        replicas = Replicas(
            store,
            rank=rank,
            size=size,
            every=5,
            fingerprint=lambda: prints.append(rank) or "same",  # type: ignore[func-returns-value]
            is_stale=lambda: False,
        )
        for step in (5, 5, 10):
            replicas.compare(step)

    with ThreadPoolExecutor(size) as pool:
        list(pool.map(both_commits, range(size)))
    assert sorted(prints) == [0, 0, 1, 1]


def test_rank_0_wins_a_tie() -> None:
    assert odd_ones_out(["a", "b"]) == [1]
    assert odd_ones_out(["a", "b", "c"]) == [1, 2]
    assert odd_ones_out(["a", "b", "b"]) == [0]


def test_comparison_ends_with_its_generation() -> None:
    """A rank that does not come must not hold the others."""
    is_over = threading.Event()
    replicas = Replicas(
        HashStore(), rank=0, size=2, every=1, fingerprint=str, is_stale=is_over.is_set
    )
    threading.Timer(0.05, is_over.set).start()
    with pytest.raises(Interrupted):
        replicas.compare(1)
