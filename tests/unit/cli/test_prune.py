"""`elasticd prune`, as a person calls it."""

import pytest

from elasticd.cli import record_source
from elasticd.cli.main import main
from elasticd.records.codec import encode
from elasticd.records.ids import JobName
from elasticd.records.job import JobStatus
from elasticd.records.keys import Keys
from elasticd.records.reason import Phase
from elasticd.store.api import Put, Txn
from elasticd.store.memory import MemoryStore

KEYS = Keys()
ETCD = ("--etcd", "http://127.0.0.1:1")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore()
    monkeypatch.setattr(MemoryStore, "close", lambda self: None)
    monkeypatch.setattr(record_source, "open_store", lambda settings, keys: store)
    for job in ("a", "b"):
        status = JobStatus(phase=Phase.FAILED)
        put = Put(key=KEYS.status(JobName(job)), value=encode(status))
        store.commit(Txn(then=(put,)))
    return store


def test_prune_says_what_it_removed(store: MemoryStore, capsys: pytest.CaptureFixture[str]) -> None:
    """And how the space comes back, and in the end that there is nothing left."""
    assert main(["prune", "b", *ETCD]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "job b: 1 record removed" and "defragmented" in said[1]
    assert main(["prune", *ETCD]) == 0
    assert capsys.readouterr().out.startswith("job a: 1 record removed")
    assert main(["prune", *ETCD]) == 0
    assert capsys.readouterr().out == "There is no job that is over: nothing to remove.\n"


def test_a_dry_run_removes_nothing(store: MemoryStore, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what would go."""
    assert main(["prune", "--dry-run", *ETCD]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 and all("nothing was changed" in line for line in said)
    assert len(store.keys(KEYS.jobs)) == 2
