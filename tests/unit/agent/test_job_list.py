"""How an agent learns of the jobs that there are."""

from collections.abc import Iterator
from queue import Queue

import pytest

from elasticd.control import jobs
from elasticd.errors import Unavailable
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec
from elasticd.records.keys import Keys
from elasticd.store.api import KeyValue
from elasticd.store.memory import MemoryStore
from elasticd_agent.courier import Courier
from elasticd_agent.job_list import JobList

KEYS = Keys()
SPEC = JobSpec(name=JobName("job"), uid="one", entry_kind=EntryKind.SCRIPT, entry="t.py")
WAIT_S = 30.0


class Limping(MemoryStore):
    """Answers the first reads of a key with Unavailable; its watches work."""

    failures = 2

    def get(self, key: str) -> KeyValue | None:
        if key == KEYS.spec(SPEC.name) and self.failures:
            self.failures -= 1
            raise Unavailable("etcd is away")
        return super().get(key)


@pytest.fixture
def courier() -> Iterator[Courier]:
    courier = Courier()
    yield courier
    courier.close(WAIT_S)


def test_spec_that_could_not_be_read_is_read_again(courier: Courier) -> None:
    """The watch tells of a job once; a short outage just then must not lose it for ever."""
    store, appeared = Limping(), Queue[JobSpec]()
    jobs.submit(store, KEYS, SPEC)
    listed = JobList(
        store,
        KEYS,
        courier,
        lambda item: item(),
        only=None,
        appeared=lambda spec, order: appeared.put(spec),
        vanished=lambda job: None,
        refused=lambda why: None,
    )
    assert appeared.get(timeout=WAIT_S) == SPEC
    assert store.failures == 0
    listed.close()
