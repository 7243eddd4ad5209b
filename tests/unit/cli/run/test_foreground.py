"""`elasticd run` until its job is submitted."""

import json
import signal
from pathlib import Path

import pytest

from elasticd.cli.run import foreground
from elasticd.cli.run.foreground import Foreground
from elasticd.cli.run.request import Mode, RunRequest
from elasticd.control import job_submission
from elasticd.errors import Unavailable
from elasticd.records.autoscale.policy import Policy
from elasticd.store.api import Store, StoreSettings, Txn, TxnResult
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC, end


def test_ctrl_c_before_the_job_is_submitted_submits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Etcd was slow: the job ran, with exit code 0, though its caller had given up."""
    store = MemoryStore()
    monkeypatch.setattr(store, "close", lambda: None)
    settings = StoreSettings(endpoints=("http://a:1",))
    request = RunRequest(mode=Mode.SUBMIT, job=JOB, draft=SPEC, store=settings, is_detached=True)
    run = Foreground(request, SPEC, tmp_path, {})

    def slow(*_: object) -> Store:
        run._interrupt.take(signal.SIGINT, None)
        return store

    monkeypatch.setattr(foreground, "open_store", slow)
    assert run.submit() == 130
    assert store.get(KEYS.spec(JOB)) is None
    assert "was not submitted" in capfd.readouterr().err


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A cluster without nodes and jobs."""
    made = MemoryStore()
    monkeypatch.setattr(made, "close", lambda: None)
    monkeypatch.setattr(foreground, "open_store", lambda *_: made)
    return made


def submission(folder: Path, policy: Policy | None = None, *, is_json: bool = False) -> Foreground:
    """Return a call that submits a job and does not follow it."""
    request = RunRequest(
        mode=Mode.SUBMIT,
        job=JOB,
        draft=SPEC,
        store=StoreSettings(endpoints=("http://a:1",), user="ada", password="secret"),
        is_detached=True,
        is_json=is_json,
        autoscale="worth.toml",
    )
    return Foreground(request, SPEC, folder, {}, policy)


def test_program_that_submits_a_job_is_told_what_it_needs_to_follow_it(
    store: MemoryStore, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing was printed: the job's uid stood nowhere, nor a name that elasticd had chosen."""
    assert submission(tmp_path, is_json=True).submit() == 0
    shown = capfd.readouterr()
    assert not shown.err and "secret" not in shown.out
    assert json.loads(shown.out) == {
        "job": JOB,
        "uid": SPEC.uid,
        "etcd": ["http://a:1"],
        "cluster": "default",
        "message": f"job {JOB} submitted; `elasticd status {JOB}` shows it",
    }


def test_job_whose_policy_cannot_be_written_is_said_to_go_on(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job runs, and only "etcd does not answer" was said."""
    commit = store.commit

    def refuse_policy(txn: Txn) -> TxnResult:
        if any(write.key == KEYS.policy(JOB) for write in txn.then):
            raise Unavailable("etcd does not answer.")
        return commit(txn)

    monkeypatch.setattr(store, "commit", refuse_policy)
    with pytest.raises(Unavailable, match=r"submitted and goes on; .*autoscale set j worth\.toml"):
        submission(tmp_path, Policy(uid=SPEC.uid)).submit()
    assert store.get(KEYS.spec(JOB)) is not None


def test_job_that_was_over_before_it_had_its_policy_is_no_error(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs none any more."""
    submit = job_submission.submit

    def submit_short(*call: object) -> None:
        submit(store, KEYS, SPEC)
        end(store)

    monkeypatch.setattr(job_submission, "submit", submit_short)
    assert submission(tmp_path, Policy(uid=SPEC.uid)).submit() == 0
