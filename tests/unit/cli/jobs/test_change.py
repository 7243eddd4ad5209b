"""What `scale`, `drain` and `stop` say, for people and for programs."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from elasticd.cli.etcd_flags import Values
from elasticd.cli.jobs.wait import end_of
from elasticd.cli.main import main
from elasticd.control import job_submission, jobs
from elasticd.errors import Unavailable
from elasticd.records.checkpoint import CheckpointSpec
from elasticd.records.codec import decode
from elasticd.records.ids import JobName, Nonce, Slot
from elasticd.records.job import JobStatus, Want
from elasticd.records.member import SlotOffer
from elasticd.records.reason import Phase, Reason
from elasticd.store.api import Delete, Txn
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC, end, member, node, put


def test_several_names_are_done_in_one_call(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """One that is wrong is said, and does not keep the others from it."""
    assert main(["drain", "a", "nope", "b"]) == 2
    shown = capfd.readouterr()
    assert shown.out == "node a is being drained\nnode b is being drained\n"
    assert shown.err.startswith("elasticd: There is no node 'nope'")
    assert main(["stop", "nope", JOB]) == 2
    assert f"job {JOB} is asked to stop" in capfd.readouterr().out


@pytest.mark.parametrize("flags", [[], ["--dry-run"]], ids=["for real", "dry run"])
def test_last_copy_of_several_nodes_is_refused_in_a_dry_run_too(
    store: MemoryStore, capfd: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    """A dry run writes nothing, and must still count those that the same call names before."""
    offer = SlotOffer(slot=Slot(0), nonce=Nonce(1), is_prepared=True, has_state=True)
    for name in "ab":
        put(store, KEYS.member(JOB, node(name).node), replace(member(name), slots=(offer,)))
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.RUNNING, is_in_process=True))
    assert main(["drain", "a", "b", *flags]) == 2
    shown = capfd.readouterr()
    assert "node a is being drained" in shown.out and "node b" not in shown.out
    assert "Node 'b' has the only copy" in shown.err
    assert len(store.list(KEYS.drains).items) == (0 if flags else 1)


def test_programs_get_one_object_a_line(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """Which says as well whether anything was changed."""
    assert main(["drain", "--json", "a", "b"]) == 0
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(each["node"], each["is_drained"]) for each in told] == [("a", True), ("b", True)]
    most = SPEC.max_nodes
    assert main(["scale", JOB, str(most), "--json", "--dry-run"]) == 0
    told = [json.loads(capfd.readouterr().out)]
    assert (told[0]["job"], told[0]["nodes"], told[0]["is_dry_run"]) == (JOB, most, True)
    assert store.list(KEYS.wants(JOB)).items == ()
    assert main(["stop", JOB, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["message"] == f"job {JOB} is asked to stop"
    (want,) = store.list(KEYS.wants(JOB)).items
    assert decode(Want, want.value).is_stop


def test_undo_says_which_jobs_the_node_leaves_all_the_same(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its agent asked them for a world without it, and does not take that back."""
    place = KEYS.member(JOB, node("a").node)
    for leaving, rest in (
        (None, ""),
        (Reason.DRAINED, f"; it still leaves job {JOB} first, and then joins again"),
    ):
        put(store, place, replace(member("a"), leaving=leaving))
        assert main(["drain", "a"]) == 0
        assert main(["drain", "a", "--undo"]) == 0
        assert capfd.readouterr().out.splitlines()[-1] == "node a may work again" + rest


def test_scale_auto_takes_the_wish_back(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """And says what is wanted then; a word that is neither a number nor `auto` is refused."""
    put(store, KEYS.member(JOB, node("a").node), member("a"))
    assert main(["scale", JOB, "1"]) == 0
    assert main(["scale", JOB, "auto", "--dry-run"]) == 0
    assert main(["scale", JOB, "auto"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == (
        f"job {JOB} is not scaled by a person any more: 1 node wanted"
    )
    (want,) = store.list(KEYS.wants(JOB)).items
    assert decode(Want, want.value).nodes is None
    assert main(["scale", JOB, "auto"]) == 2
    assert main(["scale", JOB, "many"]) == 2
    assert "or `auto`" in capfd.readouterr().err


def test_stop_waits_for_the_end_of_all_jobs(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """What only asks is over too soon for who wants the slots."""
    # No node serves it: the wish alone ends it.
    assert main(["stop", JOB, "--wait"]) == 0
    assert capfd.readouterr().out == f"job {JOB} is asked to stop\njob {JOB} is over (stopped)\n"


def test_stop_says_what_is_not_over_in_time(
    store: MemoryStore, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wish stands; --timeout alone has no meaning."""
    put(store, KEYS.member(JOB, node("a").node), member("a"))
    assert main(["stop", JOB, "--wait", "--timeout", "0"]) == 124
    assert "was asked to stop and is not over" in capfd.readouterr().err
    assert store.list(KEYS.wants(JOB)).items
    assert main(["stop", JOB, "--timeout", "5"]) == 2
    assert "add --wait" in capfd.readouterr().err
    assert main(["drain", "a", "--undo", "--wait"]) == 2
    assert "--undo is done at once" in capfd.readouterr().err


def test_stop_does_not_wait_for_a_job_that_took_the_name_meanwhile(
    store: MemoryStore, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for the other one's end, without a limit."""
    other = replace(SPEC, name=JobName("k"))
    job_submission.submit(store, KEYS, other)
    is_taken: list[bool] = []

    def taken(values: Values, job: str, **more: Any) -> JobStatus | None:
        if not is_taken:  # While the first job is waited for.
            is_taken.append(True)
            job_submission.submit(store, KEYS, replace(other, uid="v"))
        return end_of(values, job, is_given_up=lambda: True, **more)

    monkeypatch.setattr("elasticd.cli.jobs.change.stop.end_of", taken)
    assert main(["stop", JOB, other.name, "--wait"]) == 2
    assert "Job 'k' is over, and another one has its name now" in capfd.readouterr().err


def test_stop_of_a_job_in_its_first_step_waits_for_what_it_saves(
    store: MemoryStore, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its members say that it trains under `elasticd.run` before its status does."""
    offer = SlotOffer(slot=Slot(0), nonce=Nonce(1), is_prepared=True)
    key = KEYS.member(JOB, node("a").node)
    put(store, KEYS.spec(JOB), replace(SPEC, checkpoint=CheckpointSpec(url="/x", owner="o")))
    put(store, key, replace(member("a"), slots=(offer,)))
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.RUNNING))

    def save_and_leave(seconds: float) -> None:
        store.commit(Txn(then=(Delete(key=key),)))

    monkeypatch.setattr(jobs, "wait_left", partial(jobs.wait_left, pause=save_and_leave))
    assert main(["stop", JOB]) == 0
    assert not store.list(KEYS.members(JOB)).items


def test_stop_waits_for_what_is_saved_while_etcd_is_away(
    store: MemoryStore, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call ended with an error: its other jobs were not waited for, and no end was told."""
    offer = SlotOffer(slot=Slot(0), nonce=Nonce(1), is_prepared=True)
    key = KEYS.member(JOB, node("a").node)
    put(store, KEYS.spec(JOB), replace(SPEC, checkpoint=CheckpointSpec(url="/x", owner="o")))
    put(store, key, replace(member("a"), slots=(offer,)))
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.RUNNING))
    outcomes: list[Exception | None] = [Unavailable("No etcd answers."), None]

    def wait_left(*_: object, **__: object) -> bool:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome
        end(store, Phase.STOPPED)
        return True

    monkeypatch.setattr(jobs, "wait_left", wait_left)
    assert main(["stop", JOB, "--wait"]) == 0
    assert capfd.readouterr().out.endswith(f"job {JOB} is over (stopped)\n")
    assert not outcomes


def test_drain_waits_until_no_job_holds_the_node(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """Then the machine may be switched off; until then it is said who is there."""
    put(store, KEYS.member(JOB, node("a").node), member("a"))
    assert main(["drain", "a", "b", "--wait", "--timeout", "0"]) == 124
    shown = capfd.readouterr()
    assert shown.out.endswith("node b is free of jobs\n")
    assert f"Node 'a' is still used by {JOB}" in shown.err
    store.commit(Txn(then=(Delete(key=KEYS.member(JOB, node("a").node)),)))
    assert main(["drain", "a", "--wait", "--json"]) == 0
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert told[-1]["is_free"] is True
