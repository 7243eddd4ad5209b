"""What is read of a job's records, and what of its history is not even looked at."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from elasticd.autoscale.loop import job_watch
from elasticd.autoscale.loop.job_watch import JobWatch
from elasticd.records.ids import Generation
from elasticd.store.api import Put, Txn
from tests.fixtures.autoscaler_scene import Cluster, JobScene
from tests.fixtures.patience import patience_s

HISTORY = 400


class CountedKey(str):
    """A key that counts how often somebody asks what it begins with."""

    __slots__ = ()
    asked = 0

    def startswith(self, *args: object) -> bool:
        CountedKey.asked += 1
        return super().startswith(*args)  # type: ignore[arg-type]


@pytest.fixture
def job() -> JobScene:
    cluster = Cluster()
    cluster.node("a", "b")
    job = cluster.job("j").submit()
    for generation in range(100, 100 + HISTORY):
        key = job.keys.incidents_of(job.name, Generation(generation))
        job.store.commit(Txn(then=(Put(key=f"{key}a", value=b"no record at all"),)))
    job.run("a", "b")
    job.tell("a", 7)
    return job


@pytest.fixture
def watch(job: JobScene) -> Iterator[JobWatch]:
    with closing(JobWatch(job.store, job.keys, job.name)) as watch:
        assert watch.wait_ready(patience_s(10.0))
        yield watch


def test_incidents_of_other_generations_are_not_decoded(watch: JobWatch) -> None:
    """Only those of the world that trains are of use; these here could not be decoded at all."""
    facts = watch.read()
    assert facts is not None
    assert [each.step for each in facts.incidents] == [7]


def test_a_change_costs_no_look_at_the_history(
    job: JobScene, watch: JobWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of many nodes leaves up to fifty thousand incidents, and its progress changes often."""
    watch.read()
    job.progress(9, 1.0)
    monkeypatch.setattr(
        job_watch, "sorted", lambda keys: sorted(map(CountedKey, keys)), raising=False
    )
    CountedKey.asked = 0
    facts = watch.read()
    assert facts is not None and facts.progress is not None and facts.progress.step == 9
    assert 0 < CountedKey.asked < HISTORY / 4
