"""All ranks name the same last step, whenever they hear that they are to leave."""

import threading
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed import HashStore  # type: ignore[attr-defined]

from elasticd.train.session.departure import agree


@settings(max_examples=25, deadline=None)
@given(named=st.lists(st.integers(1, 10**9), min_size=1, max_size=6))
def test_latest_step_that_any_rank_names_is_the_last_of_all(named: list[int]) -> None:
    store = HashStore()

    def of(rank: int) -> int | None:
        return agree(store, rank, len(named), least=named[rank], is_over=lambda: False)

    with ThreadPoolExecutor(len(named)) as pool:
        assert set(pool.map(of, range(len(named)))) == {max(named)}


def test_rank_whose_peer_is_gone_gets_no_answer() -> None:
    assert agree(HashStore(), 0, 2, least=3, is_over=lambda: True) is None


def test_peer_that_left_as_agreed_hides_no_answer() -> None:
    """It leaves a moment after the answer, and its end may be seen first."""
    store, is_over = HashStore(), threading.Event()

    def over() -> bool:
        # Between this look and the next one the peer names its step and is gone.
        if not is_over.is_set():
            agree(store, 1, 2, least=9, is_over=lambda: False)
            is_over.set()
        return True

    assert agree(store, 0, 2, least=3, is_over=over) == 9
