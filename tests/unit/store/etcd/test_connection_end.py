"""A call to an etcd that has ended for good."""

from contextlib import closing

import pytest

from elasticd.errors import Unavailable
from elasticd.store.api import StoreSettings
from elasticd.store.etcd.store import EtcdStore
from tests.fixtures.ports import free_port


def test_etcd_that_has_ended_for_good_is_not_waited_for() -> None:
    """As that of a local run, whose end stands in an archive by then."""
    settings = StoreSettings(
        endpoints=(f"http://127.0.0.1:{free_port()}",), timeout_s=3600.0, has_ended=lambda: True
    )
    with closing(EtcdStore(settings)) as store, pytest.raises(Unavailable):
        store.get("/key")
