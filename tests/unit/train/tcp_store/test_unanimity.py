"""Rank 0 learns whether all ranks agree, and no key is left behind."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from elasticd.train.tcp_store.unanimity import is_unanimous
from tests.fixtures.patience import patience_s

SIZE = 4


def asked(store: HashStore, rank: int, *, agrees: bool, is_over: bool = False) -> bool | None:
    return is_unanimous(store, "key", rank=rank, size=SIZE, agrees=agrees, is_stale=lambda: is_over)


@pytest.mark.parametrize("against", [(), (0,), (3,), (1, 2), (0, 1, 2, 3)])
def test_all_must_agree(against: tuple[int, ...]) -> None:
    """One that does not is enough, whichever it is; rank 0 waits for the last one."""
    store = HashStore()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(asked, store, 0, agrees=0 not in against)
        for rank in range(1, SIZE):
            assert not first.done()
            assert asked(store, rank, agrees=rank not in against) is False
        assert first.result(patience_s(30.0)) is (not against)
    assert store.num_keys() == 0


def test_generation_that_ends_is_no_answer() -> None:
    """A rank that has died never comes."""
    assert asked(HashStore(), 0, agrees=True, is_over=True) is None
