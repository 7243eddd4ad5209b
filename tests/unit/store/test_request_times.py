"""How long calls to etcd took, in the buckets of a histogram."""

from threading import Thread

import pytest

from elasticd.errors import ElasticdError
from elasticd.store.api import StoreSettings
from elasticd.store.etcd.store import EtcdStore
from elasticd.store.request_times import BOUNDS_S, RequestTimes
from tests.fixtures.patience import patience_s


def test_call_is_counted_in_the_first_bucket_that_holds_it() -> None:
    """A bound belongs to its bucket, as Prometheus has it."""
    times = RequestTimes()
    for took_s in (0.0, BOUNDS_S[0], BOUNDS_S[0] + 1e-9, BOUNDS_S[-1] + 1.0):
        times.observe(took_s)
    counts, sum_s = times.read()
    assert counts == (2, 1, 0, 0, 0, 1)
    assert sum_s == pytest.approx(2 * BOUNDS_S[0] + BOUNDS_S[-1] + 1.0)


def test_no_call_is_lost_among_threads() -> None:
    """The effect_thread, the lease and the watches have threads of their own."""
    times = RequestTimes()

    def observe() -> None:
        for _ in range(2000):
            times.observe(0.001)

    threads = [Thread(target=observe) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience_s(30.0))
    assert times.read()[0][0] == 8000


def test_call_that_fails_is_counted_with_all_its_tries() -> None:
    """An etcd that is away is what the histogram is for."""
    store = EtcdStore(StoreSettings(endpoints=("http://127.0.0.1:1",), timeout_s=0.3))
    try:
        with pytest.raises(ElasticdError):
            store.get("key")
        counts, sum_s = store.request_times.read()
        assert sum(counts) == 1 and sum_s > 0.0
    finally:
        store.close()
