"""`elasticd status`: all jobs, one of them, drawn once or again and again."""

import io
import json
import sys
import time
from dataclasses import replace

import click
import pytest

from elasticd.cli.jobs import status as command
from elasticd.cli.jobs.redraw import redraw
from elasticd.cli.main import main
from elasticd.control import job_submission
from elasticd.errors import Unavailable
from elasticd.records.account.progress import RankProgress
from elasticd.records.account.time_spent import JobProgress
from elasticd.records.checkpoint import CheckpointSpec
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Rank
from elasticd.records.job import JobStatus
from elasticd.records.member import Result, Training
from elasticd.records.reason import Phase
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC, end, make_newer, put, world

RUNNING = JobStatus(phase=Phase.RUNNING, generation=Generation(2))


def run_it(store: MemoryStore) -> None:
    """The job runs on both nodes, submitted two hours ago."""
    put(store, KEYS.status(JOB), RUNNING)
    put(store, KEYS.world(JOB), world(2, "a", "b"))
    at_s = time.time() - 7_260.0
    put(store, KEYS.spec(JOB), replace(SPEC, submitted_by="ada@x1", submitted_at_unix_s=at_s))


def test_job_is_shown_with_who_submitted_it_and_its_processes(
    store: MemoryStore, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And how fast it is; a node that did not answer has no numbers."""
    run_it(store)
    rank = RankProgress(rank=Rank(0), generation=Generation(2), pid=4711, step=20, step_s=0.125)
    monkeypatch.setattr(command, "read_ranks", lambda *args: (rank,))
    assert main(["status", JOB]) == 0
    shown = capfd.readouterr().out
    assert "submitted by ada@x1 at " in shown and ", 2 h 1 min ago\n" in shown
    assert "training: step 20; 8 steps/s\n" in shown
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if "host-" in line}
    assert rows["a"][1:4] == ["host-a", "0", "4711"]
    assert rows["b"][1:3] == ["host-b", "1"]


def test_change_of_size_of_an_in_process_job_is_not_called_a_restart(
    store: MemoryStore, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing restarted; the number is that of changes of world, joins and resizes too."""
    run_it(store)
    put(store, KEYS.status(JOB), replace(RUNNING, restarts=2, is_in_process=True))
    monkeypatch.setattr(command, "read_ranks", lambda *args: ())
    assert main(["status", JOB]) == 0
    assert "\nchanges of world: 2; of the budget: script errors 0/3" in capfd.readouterr().out
    assert main(["status"]) == 0
    head, _, row = [line.split() for line in capfd.readouterr().out.splitlines() if line.strip()]
    assert dict(zip(head, row, strict=False))["CHANGES"] == "2" and "RESTARTS" not in head


@pytest.mark.parametrize(
    ("ages_s", "said"),
    [
        ((70.0, 12.0, None), "checkpoint: the newest is 12 s old; file:///ckpt\n"),
        (
            (None,),
            (
                "checkpoint: none is durable since rank 0's keeper began; "
                "if there are older ones, `elasticd checkpoint ls` shows them; file:///ckpt\n"
            ),
        ),
        ((), None),
    ],
)
def test_job_with_checkpoints_says_how_old_the_newest_is(
    store: MemoryStore,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ages_s: tuple[float | None, ...],
    said: str | None,
) -> None:
    """That is what would be lost with all nodes now. Where no node answers, nothing is claimed."""
    run_it(store)
    put(
        store,
        KEYS.spec(JOB),
        replace(SPEC, checkpoint=CheckpointSpec(url="file:///ckpt", owner="j")),
    )
    ranks = [
        RankProgress(rank=Rank(at), generation=Generation(2), step=20, checkpoint_ago_s=age_s)
        for at, age_s in enumerate(ages_s)
    ]
    monkeypatch.setattr(command, "read_ranks", lambda *args: tuple(ranks))
    assert main(["status", JOB]) == 0
    shown = capfd.readouterr().out
    assert said in shown if said is not None else "checkpoint" not in shown


@pytest.mark.parametrize(
    ("free_bytes", "said"),
    [
        (0, "nothing"),
        (12_288, "12.3 kB"),
        (command.FULL_BYTES, None),
        (None, None),
    ],
)
def test_node_whose_workers_find_no_room_for_their_output_is_named(
    store: MemoryStore,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    free_bytes: int | None,
    said: str | None,
) -> None:
    """Their lines are dropped, and the job trains on."""
    run_it(store)
    ranks = tuple(
        RankProgress(rank=Rank(at), generation=Generation(2), step=20, output_free_bytes=free)
        for at, free in enumerate((10**9, free_bytes))
    )
    monkeypatch.setattr(command, "read_ranks", lambda *args: ranks)
    assert main(["status", JOB]) == 0
    shown = capfd.readouterr().out
    line = f"node b: {said} is left on the disk to which its workers write; lines that find no room"
    assert (line in shown) == (said is not None)
    assert ("no room" in shown) == (said is not None) and "node a:" not in shown


@pytest.mark.parametrize("is_held_up", [False, True])
def test_job_whose_snapshots_wait_for_an_upload_says_so_and_what_to_do(
    store: MemoryStore,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_held_up: bool,
) -> None:
    """Whichever node has no memory."""
    run_it(store)
    saved = CheckpointSpec(url="file:///ckpt", owner="j")
    put(store, KEYS.spec(JOB), replace(SPEC, checkpoint=saved))
    ranks = tuple(
        RankProgress(
            rank=Rank(at), generation=Generation(2), step=20, is_held_up=is_held_up and at > 0
        )
        for at in range(2)
    )
    monkeypatch.setattr(command, "read_ranks", lambda *args: ranks)
    assert main(["status", JOB]) == 0
    said = "snapshots wait until an upload is done, since a node has no memory for a third buffer"
    assert (said in capfd.readouterr().out) == is_held_up


def test_job_that_is_over_says_how_far_it_came(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody need know for that that `why` says it."""
    training = Training(steps=460, epochs=20, samples=28740, repeated=0, skipped=0)
    ended = Result(
        node=NodeId("a"),
        incarnation=Incarnation("a.1"),
        generation=Generation(2),
        training=training,
    )
    put(store, KEYS.result(JOB, NodeId("a")), ended)
    run_it(store)
    assert main(["status", JOB]) == 0
    assert "trained:" not in capfd.readouterr().out
    end(store)
    assert main(["status", JOB]) == 0
    assert "trained: 460 steps, 20 epochs, 28740 samples" in capfd.readouterr().out


def test_job_whose_ranks_counted_nothing_says_its_last_step_on_record(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """One that failed, and a script that says its steps by `elasticd.progress`."""
    run_it(store)
    put(store, KEYS.progress(JOB), JobProgress(uid=SPEC.uid, step=79, has_steps=True))
    for word in ("status", "why"):
        assert main([word, JOB]) == 0
        assert "on record" not in capfd.readouterr().out, "its ranks are asked"
    end(store)
    for word in ("status", "why"):
        assert main([word, JOB]) == 0
        assert "last step on record: 79\n" in capfd.readouterr().out


def test_job_of_an_older_version_is_shown_without_its_submitter(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """It did not say."""
    assert main(["status", JOB]) == 0
    assert "submitted" not in capfd.readouterr().out


def test_running_leaves_out_what_is_over(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """A cluster keeps hundreds of those."""
    put(store, KEYS.spec(JobName("live")), replace(SPEC, name=JobName("live"), uid="v"))
    put(store, KEYS.status(JobName("live")), RUNNING)
    end(store)
    assert main(["status", "--running", "--json"]) == 0
    assert [each["job"] for each in json.loads(capfd.readouterr().out)] == ["live"]
    put(store, KEYS.status(JobName("live")), JobStatus(phase=Phase.FAILED))
    assert main(["status", "--running"]) == 0
    assert capfd.readouterr().out == "No job is running.\n"
    assert main(["status", JOB, "--running"]) == 2
    assert "--running is for the list" in capfd.readouterr().err


def test_watch_without_a_terminal_is_refused(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """What clears a screen is of no use in a file."""
    assert main(["status", "-w"]) == 2
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("elasticd: --watch draws on a terminal, and there is none: ")


def test_watch_ends_with_the_job_and_gives_programs_a_document_a_line(
    store: MemoryStore, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a script can wait for a phase."""
    run_it(store)
    monkeypatch.setattr(command, "read_ranks", lambda *args: ())
    monkeypatch.setattr(
        command,
        "redraw",
        lambda show, is_json: redraw(show, is_json=is_json, pause=lambda s: end(store)),
    )
    assert main(["status", JOB, "-w", "--json"]) == 0
    phases = [json.loads(line)["status"]["phase"] for line in capfd.readouterr().out.splitlines()]
    assert phases == ["running", "succeeded"]


def test_watch_goes_on_while_etcd_does_not_answer(capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever watches a cluster wants to see that, and what comes after it."""
    answers: list[bool | Unavailable] = [True, Unavailable("etcd does not answer."), False]

    def show() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    redraw(show, is_json=True, pause=lambda s: None)
    assert answers == []
    assert capfd.readouterr().err == "elasticd: etcd does not answer.\n"


def test_watch_leaves_the_picture_until_it_has_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An etcd that takes seconds to answer would otherwise leave an empty screen."""
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    seen: list[str] = []

    def show() -> bool:
        seen.append(screen.getvalue())
        assert sys.stdout.isatty()
        click.echo(f"picture {len(seen)}")
        return len(seen) < 2

    redraw(show, is_json=False, pause=lambda s: None)
    before, after = seen
    assert before == "" and after.endswith("\npicture 1\n")
    assert screen.getvalue().count("\x1b[2J") == 2 and screen.getvalue().endswith("picture 2\n")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_job_of_a_newer_elasticd_hides_no_other(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is named in one line: below the table, or on stderr beside JSON."""
    other = JobName("other")
    job_submission.submit(store, KEYS, replace(SPEC, name=other, uid="o"))
    make_newer(store, KEYS.spec(other))
    assert main(["status"]) == 0
    shown = capfd.readouterr().out
    assert [line.split()[0] for line in shown.splitlines() if " pending " in line] == [JOB]
    assert "\nJob other is left out: The JobSpec record in etcd has schema 2.0" in shown
    assert main(["status", "--json"]) == 0
    said = capfd.readouterr()
    assert [each["job"] for each in json.loads(said.out)] == [JOB]
    assert said.err.startswith("elasticd: Job other is left out: ")
    assert main(["status", JOB]) == 0
    shown = capfd.readouterr().out
    assert f"job {JOB}: pending" in shown and "Job other is left out: " in shown


def test_list_of_which_nothing_can_be_read_is_not_called_empty(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """There is a job; this elasticd is too old for it."""
    make_newer(store, KEYS.spec(JOB))
    assert main(["status"]) == 0
    assert capfd.readouterr().out.startswith(f"Job {JOB} is left out: ")
