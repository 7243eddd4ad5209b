"""`elasticd autoscale unset`: what goes, what stays, and which size it comes to."""

import json

import pytest

from elasticd.cli.main import main
from elasticd.control.job_policy import unset_policy
from elasticd.errors import NotFound
from elasticd.records.autoscale.curve import Curve
from elasticd.records.job import Active, Want
from elasticd.store.api import Delete, Put, Txn
from elasticd.store.memory import MemoryStore
from tests.fixtures.autoscaled import JOB, KEYS, autoscaled, put, report_of
from tests.unit.cli.autoscale.conftest import Look

WISH = Want(writer="autoscaler", nodes=2, why="3 were taken back")
PIN = Want(writer="user", nodes=3, why="elasticd scale")


def test_unset_removes_policy_want_and_memory_and_keeps_what_was_learnt(
    look: Look, capfd: pytest.CaptureFixture[str]
) -> None:
    """The size is what others wish for, and that is said."""
    store = look(autoscaled(wants=(WISH,)))
    assert main(["autoscale", "unset", JOB]) == 0
    told = capfd.readouterr().out
    assert told == (
        "job digits has no policy any more; size: 4 nodes, as many as it may have: nobody wishes "
        "for another size\n"
    )
    report = report_of(store)
    assert report.wants == {} and report.autoscaling is not None
    assert report.autoscaling.policy is None and report.autoscaling.memory is None
    assert isinstance(report.autoscaling.curve, Curve) and len(report.autoscaling.decisions) == 3


def test_pin_of_a_person_stays(look: Look, capfd: pytest.CaptureFixture[str]) -> None:
    """For programs the number stands apart."""
    store = look(autoscaled(wants=(WISH, PIN)))
    assert main(["autoscale", "unset", JOB, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["target_nodes"] == 3
    assert report_of(store).wants == {"user": PIN}


def test_dry_run_changes_nothing(look: Look, capfd: pytest.CaptureFixture[str]) -> None:
    """It says what would come of it."""
    store = look(autoscaled(wants=(WISH,)))
    before = store.list(KEYS.jobs).items
    assert main(["autoscale", "unset", JOB, "--dry-run"]) == 0
    assert "dry run, nothing was changed: job digits has no policy" in capfd.readouterr().out
    assert store.list(KEYS.jobs).items == before


def test_policy_of_a_newer_version_can_be_taken_back(look: Look) -> None:
    """It need not be understood for that."""
    store = look(autoscaled())
    store.commit(Txn(then=(Put(key=KEYS.policy(JOB), value=b'{"kind":"Policy","schema":"9.0"}'),)))
    assert main(["autoscale", "unset", JOB]) == 0
    assert store.get(KEYS.policy(JOB)) is None


def test_wrong_input_is_one_sentence(
    look: Look, over: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """A job that is over, one without a policy, one that there is not."""
    assert main(["autoscale", "unset", JOB]) == 2
    assert "Job 'digits' is over (succeeded): a policy sizes jobs that run." in (
        capfd.readouterr().err
    )
    look(autoscaled(policy=None, memory=None))
    assert main(["autoscale", "unset", JOB]) == 2
    assert "Job 'digits' has no policy: there is nothing to unset." in capfd.readouterr().err
    assert main(["autoscale", "unset", "digit"]) == 2
    assert "did you mean digits?" in capfd.readouterr().err


def test_job_that_ends_meanwhile_is_left_as_it_is() -> None:
    """And so is another one that has its name by then."""
    store = autoscaled()
    spec = report_of(store).spec
    put(store, KEYS.active_job(JOB), Active(uid="another", is_ready=True))
    with pytest.raises(NotFound, match="is over"):
        unset_policy(store, KEYS, spec)
    store.commit(Txn(then=(Delete(key=KEYS.active_job(JOB)),)))
    with pytest.raises(NotFound, match="is over"):
        unset_policy(store, KEYS, spec)
    assert store.get(KEYS.policy(JOB)) is not None
