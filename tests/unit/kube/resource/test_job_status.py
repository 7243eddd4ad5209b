"""What the status of an ElasticJob says of its job."""

from dataclasses import replace

import pytest

from elasticd.kube.api.document import document, encoded
from elasticd.kube.resource.elastic_job import ElasticJob, elastic_job
from elasticd.kube.resource.job_records import FAILURE_LIMIT, JobRecords, failure_text
from elasticd.kube.resource.job_status import status_of
from elasticd.kube.resource.plain_text import REPLACEMENT
from elasticd.kube.resource.status import status_json
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Nonce, Rank, Slot
from elasticd.records.job import EntryKind, JobSpec, JobStatus
from elasticd.records.reason import Phase

RAISED = Failure(
    generation=Generation(2),
    node=NodeId("node1"),
    incarnation=Incarnation("i.1"),
    host="pod-a",
    rank=Rank(3),
    local_rank=0,
    slot=Slot(0),
    nonce=Nonce(1),
    exit_code=1,
    exception="ValueError: too hot\nat noon",
    traceback='  File "train.py", line 3, in <module>\nValueError: too hot\nat noon\n',
)
SPEC = JobSpec(name=JobName("team.x"), uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py")


def message(
    phase: Phase,
    failure: Failure | None,
    said: str = "the restarts are spent",
    wrong: str = "",
) -> str:
    """Return what the object says of a job in this phase."""
    status = JobStatus(phase=phase, failure=failure)
    return status_of(
        ElasticJob(namespace="team", name="x", uid="u"),
        JobName("team.x"),
        JobRecords(spec=SPEC, status=status, message=said),
        wrong=wrong,
        now_unix_s=0.0,
    ).message


def test_a_job_that_failed_names_its_exception() -> None:
    """Somebody who has kubectl alone learns from it what to mend."""
    how = "rank 3 on pod-a failed first: exit code 1, ValueError: too hot"
    assert message(Phase.FAILED, RAISED) == f"the restarts are spent; {how}"
    assert message(Phase.FAILED, RAISED, said="") == how
    assert message(Phase.FAILED, None) == "the restarts are spent"


@pytest.mark.parametrize("said", ["\U0001f525 \ud83d at\x00noon", "x" * 3_000_000, "\ud83d" * 9000])
def test_a_failure_says_nothing_that_cannot_be_written(said: str) -> None:
    """A script raises what it likes; the object must show it, and stay small."""
    status = status_of(
        ElasticJob(namespace="team", name="x", uid="u"),
        JobName("team.x"),
        JobRecords(spec=SPEC, status=JobStatus(phase=Phase.FAILED), message=said),
        wrong=said,
        now_unix_s=0.0,
    )
    written = encoded(status_json(status))
    assert len(written) < 100_000
    assert elastic_job({"metadata": {"name": "x"}, "status": document(written)}).status == status
    assert all(len(one.message) < 32_768 for one in status.conditions)
    assert status.message.startswith(said[:1].replace("\ud83d", REPLACEMENT))


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.WAITING, Phase.SUCCEEDED, Phase.STOPPED])
def test_a_job_that_did_not_fail_names_no_exception(phase: Phase) -> None:
    """It survived the one that is on record."""
    assert message(phase, RAISED, said="said") == "said"


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.WAITING])
def test_a_running_job_says_what_its_object_asks_for_in_vain(phase: Phase) -> None:
    """The job goes on as it was, and `kubectl get` shows why the edit has no effect."""
    wrong = "spec.replicas is 9, more than spec.maxNodes, 4."
    assert message(phase, None, said="", wrong=wrong) == wrong
    assert message(phase, None, said="It waits.", wrong=wrong) == f"It waits. {wrong}"
    assert message(Phase.SUCCEEDED, None, said="said", wrong=wrong) == "said"


def test_a_worker_that_only_exits_is_named_by_its_last_line() -> None:
    """An interpreter that finds no script raises nothing, and says so."""
    told = "python: can't open file '/nowhere.py': [Errno 2] No such file or directory"
    for exception in ("", "SystemExit: 2"):
        found = replace(RAISED, exit_code=2, exception=exception, traceback=f"first\n{told}\n")
        assert failure_text(found) == f"rank 3 on pod-a failed first: exit code 2, {told}"
    silent = replace(RAISED, exception="SystemExit: 2", traceback="")
    assert failure_text(silent).endswith("exit code 1, SystemExit: 2")


def test_a_worker_that_was_killed_is_named_by_its_signal() -> None:
    killed = replace(RAISED, exit_code=None, signal="SIGKILL", exception="", traceback="")
    assert failure_text(killed) == "rank 3 on pod-a failed first: killed by SIGKILL"


def test_a_long_exception_is_cut() -> None:
    long = replace(RAISED, exception=f"ValueError: {'x' * 10_000}")
    assert len(failure_text(long)) < FAILURE_LIMIT + 100
