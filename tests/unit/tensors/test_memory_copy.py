"""Copies by several threads are those that one thread would make, whatever the tensors are."""

from collections.abc import Callable, Sequence
from threading import Event, get_ident

import pytest
import torch

from elasticd.tensors import memory_copy
from elasticd.tensors.memory_copy import BATCH_BYTES, MemoryCopy, Pair, in_threads
from tests.fixtures.patience import patience_s

LIMIT_S = patience_s(30.0)


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be several on any machine."""
    monkeypatch.setattr(memory_copy, "copy_threads", lambda: 3)


def sources() -> list[torch.Tensor]:
    """Large ones, small ones, and what is more or less than its bytes."""
    large = torch.randint(0, 255, (BATCH_BYTES + 3,), dtype=torch.uint8)
    return [
        torch.rand(BATCH_BYTES // 8),
        large,
        *(torch.rand(each) for each in range(1, 40)),
        torch.tensor(3.5, dtype=torch.float64),
        torch.empty(0, 4),
        torch.rand(6, 8)[:, ::2],
        torch.rand(4, dtype=torch.complex64).conj(),
        torch.rand(1).expand(5),
        torch.nn.Parameter(torch.rand(3, 3)),
        torch.arange(7),
    ]


def pairs_of(given: Sequence[torch.Tensor]) -> list[Pair]:
    return [(each, torch.full(each.shape, 9, dtype=each.dtype)) for each in given]


def test_every_tensor_is_copied_and_again_when_it_has_changed() -> None:
    pairs = pairs_of(sources())
    copy = MemoryCopy(pairs)
    for _ in range(2):
        copy.run()
        for source, to in pairs:
            assert torch.equal(source, to)
        with torch.no_grad():
            pairs[0][0].mul_(2)
            pairs[5][0].add_(1)


def test_other_types_are_converted() -> None:
    source, to = torch.rand(5, dtype=torch.float64), torch.zeros(5)
    MemoryCopy([(source, to)]).run()
    assert torch.equal(to, source.float())


def test_of_places_that_overlap_the_last_wins() -> None:
    """As where two names of a state have one memory: all ranks must hold the same."""
    place = torch.zeros(BATCH_BYTES)
    first, second = torch.full_like(place, 1.0), torch.full_like(place[5:], 2.0)
    MemoryCopy([(first, place), (second, place[5:])]).run()
    assert (place[:5] == 1.0).all() and (place[5:] == 2.0).all()
    MemoryCopy([(second, place[5:]), (first, place)]).run()
    assert (place == 1.0).all()


def test_copy_counts_as_a_write_of_torch() -> None:
    """Whoever watches versions learns of it; a copy without a version is no obstacle."""
    to, untracked = torch.zeros(3), torch.zeros(4)
    with torch.inference_mode():
        silent = torch.zeros(3)
    before, before_untracked = to._version, untracked._version
    ones = torch.ones(3)
    MemoryCopy([(ones, to), (ones, silent)]).run()
    assert to._version > before and untracked._version == before_untracked
    assert torch.equal(silent, ones)


def test_parameter_is_written_although_it_has_a_gradient() -> None:
    place = torch.nn.Parameter(torch.zeros(4))
    MemoryCopy([(torch.ones(4), place)]).run()
    assert torch.equal(place, torch.ones(4)) and place.is_leaf


def test_nothing_is_no_copy() -> None:
    MemoryCopy([]).run()


def test_all_jobs_are_done_beside_each_other() -> None:
    """Each of three waits for the others; the caller is one of them."""
    begun = [Event() for _ in range(3)]
    seen: list[int] = []

    def meet(own: Event) -> Callable[[], None]:
        def job() -> None:
            own.set()
            assert all(each.wait(LIMIT_S) for each in begun)
            seen.append(get_ident())

        return job

    in_threads([meet(each) for each in begun])
    assert len(set(seen)) == 3 and get_ident() in seen


def test_nothing_goes_on_after_a_job_has_failed() -> None:
    """Memory may be let go of then, so no thread may still write to it."""
    begun, has_failed = Event(), Event()
    ended: list[str] = []

    def slow() -> None:
        begun.set()
        assert has_failed.wait(LIMIT_S)
        ended.append("slow")

    def fails() -> None:
        assert begun.wait(LIMIT_S)
        has_failed.set()
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        in_threads([slow, fails])
    assert ended == ["slow"]


def test_failure_of_another_thread_reaches_the_caller() -> None:
    caller = get_ident()
    failed = Event()

    def job() -> None:
        if get_ident() != caller:
            failed.set()
            raise ValueError("elsewhere")
        assert failed.wait(LIMIT_S)

    with pytest.raises(ValueError, match="elsewhere"):
        in_threads([job] * 3)
