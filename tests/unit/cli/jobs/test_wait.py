"""`elasticd wait` and `attach`: until jobs are over, with their exit codes."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from elasticd.cli.jobs import attach as attaching
from elasticd.cli.jobs import wait as waiting
from elasticd.cli.jobs.wait import end_of, final_report
from elasticd.cli.main import main
from elasticd.cli.record_source import RecordSource
from elasticd.control.follow import News, WorldFormed
from elasticd.control.job_wait import follow_to_end
from elasticd.errors import Unavailable
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Nonce, Rank, Slot
from elasticd.records.job import JobStatus
from elasticd.records.member import Result, Training
from elasticd.records.reason import Phase
from elasticd.store.api import Delete, Txn
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC, end, member, put, world

FAILED = JobStatus(
    phase=Phase.FAILED,
    message="rank 0 raised",
    failure=Failure(
        node=NodeId("a"),
        incarnation=Incarnation("i"),
        host="h",
        generation=Generation(1),
        rank=Rank(0),
        local_rank=0,
        slot=Slot(0),
        nonce=Nonce(1),
        exit_code=7,
    ),
)


def test_exit_code_is_that_of_the_first_job_that_failed(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """One that was over before counts too."""
    other = JobName("k")
    put(store, KEYS.spec(other), replace(SPEC, name=other))
    put(store, KEYS.status(other), FAILED)
    end(store)
    assert main(["wait", JOB]) == 0
    assert capfd.readouterr().out.startswith(f"job {JOB} succeeded: ")
    assert main(["wait", JOB, other, "--json"]) == 7
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(each["job"], each["exit_code"]) for each in told] == [(JOB, 0), (other, 7)]


def test_wait_returns_when_the_job_ends(store: MemoryStore) -> None:
    """Which is told by a watch, not looked for."""
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.RUNNING))
    ending = Timer(0.05, lambda: end(store, Phase.STOPPED))
    ending.start()
    assert main(["wait", JOB]) == 143
    ending.join()


def test_wait_gives_up_after_the_timeout(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the code of `timeout`, and what to look at."""
    assert main(["wait", JOB, "--timeout", "0.01s"]) == 124
    assert capfd.readouterr().err == (
        f"elasticd: Job '{JOB}' is not over after 0.01 s: it goes on, `elasticd status {JOB}` "
        "shows it.\n"
    )


@pytest.mark.parametrize("text", ["soon", "-1", "5 minutes", "nan", ""])
def test_a_duration_that_is_none_is_refused(
    text: str, store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """In one sentence that shows how to write it."""
    assert main(["wait", JOB, "--timeout", text]) == 2
    said = capfd.readouterr().err
    assert "write 90s, 5m, 2h or 1d" in said and said.count("\n") == 1


def test_an_unknown_job_is_refused(store: MemoryStore, capfd: pytest.CaptureFixture[str]) -> None:
    """Not waited for until somebody submits it."""
    assert main(["wait", "nope"]) == 2
    assert "There is no job 'nope'" in capfd.readouterr().err


def test_of_several_jobs_an_unknown_one_is_refused_at_once(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not when the first one is over, which may take days."""
    assert main(["wait", JOB, "nobody", "--timeout", "1h"]) != 0
    assert "There is no job 'nobody'" in capfd.readouterr().err


def test_a_local_run_whose_etcd_ends_is_read_from_its_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between the two nothing answers for a moment."""
    live, archive = MemoryStore(), MemoryStore()
    for made in (live, archive):
        put(made, KEYS.spec(JOB), SPEC)
    put(live, KEYS.status(JOB), JobStatus(phase=Phase.RUNNING))
    put(archive, KEYS.status(JOB), FAILED)
    plain = RecordSource(store=live, keys=KEYS, run_folder=tmp_path)
    openings: list[RecordSource | Unavailable] = [
        plain,
        Unavailable("its etcd is gone"),
        replace(plain, store=archive, is_archive=True),
    ]

    @contextmanager
    def one(values: object, job: str) -> Iterator[tuple[RecordSource, JobName]]:
        found = openings.pop(0)
        if isinstance(found, Unavailable):
            raise found
        yield found, JOB

    monkeypatch.setattr(waiting, "job_source", one)
    monkeypatch.setattr(waiting, "follow_to_end", lambda *args, **more: None)
    status = end_of({}, JOB, until_s=math.inf, pause=lambda s: None)
    assert status is not None and status.phase is Phase.FAILED


def test_an_etcd_that_never_answered_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address is wrong."""

    @contextmanager
    def none(values: object, job: str) -> Iterator[tuple[RecordSource, JobName]]:
        raise Unavailable("No etcd answers.")
        yield

    monkeypatch.setattr(waiting, "job_source", none)
    with pytest.raises(Unavailable):
        end_of({}, JOB, until_s=math.inf)


def test_attach_shows_the_last_lines_and_what_comes_then_the_summary(
    store: MemoryStore,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And ends with the job's exit code."""
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.RUNNING, generation=Generation(1)))
    put(store, KEYS.world(JOB), world(1, "a"))
    log = tmp_path / JOB / "gen-1" / "rank-0.out"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(100)))

    def ends_when_seen(
        *args: Any, on_news: Callable[[News], None], **more: Any
    ) -> JobStatus | None:
        def take(news: News) -> None:
            on_news(news)
            if isinstance(news, WorldFormed):
                put(store, KEYS.status(JOB), FAILED)

        return follow_to_end(*args, on_news=take, **more)

    monkeypatch.setattr(waiting, "follow_to_end", ends_when_seen)
    assert main(["attach", JOB, "--tail", "2"]) == 7
    shown = capfd.readouterr()
    assert shown.out == "line 98\nline 99\n"
    assert f"[elasticd] attached to job {JOB}; Ctrl-C detaches" in shown.err
    assert "[elasticd] job failed: rank 0 raised" in shown.err
    assert "exit code 7" in shown.err


def test_what_nodes_say_as_they_leave_stands_in_the_summary(store: MemoryStore) -> None:
    """How far the training came, and where the time went; whoever never leaves is not awaited."""
    put(store, KEYS.member(JOB, NodeId("a")), member("a"))
    end(store)
    counted = Training(steps=7, epochs=1, samples=7, repeated=0, skipped=0)

    result = Result(
        node=NodeId("a"),
        incarnation=Incarnation("i"),
        generation=Generation(1),
        training=counted,
    )

    def leave(pause_s: float) -> None:
        put(store, KEYS.result(JOB, NodeId("a")), result)
        store.commit(Txn(then=(Delete(key=KEYS.member(JOB, NodeId("a"))),)))

    assert final_report({}, JOB, pause=leave).training == counted
    put(store, KEYS.member(JOB, NodeId("a")), member("a"))
    times = iter((0.0, 0.0, 0.0, 40.0))
    assert final_report({}, JOB, now_s=lambda: next(times), pause=lambda s: None).training


def test_output_is_shown_once_where_etcd_is_away_for_a_moment(
    store: MemoryStore,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The records are opened anew, and tell of the same world again."""
    put(store, KEYS.status(JOB), JobStatus(phase=Phase.RUNNING, generation=Generation(1)))
    put(store, KEYS.world(JOB), world(1, "a"))
    log = tmp_path / JOB / "gen-1" / "rank-0.out"
    log.parent.mkdir(parents=True)
    log.write_text("once\n")
    calls: list[object] = []

    def interrupted(*args: Any, on_news: Callable[[News], None], **more: Any) -> JobStatus | None:
        calls.append(on_news)
        if len(calls) == 1:
            on_news(WorldFormed(world=world(1, "a")))
            return None
        end(store)
        return follow_to_end(*args, on_news=on_news, **more)

    monkeypatch.setattr(waiting, "follow_to_end", interrupted)
    assert main(["attach", JOB]) == 0
    shown = capfd.readouterr()
    assert len(calls) == 2 and shown.out == "once\n"
    assert shown.err.count("generation 1:") == 1


def test_ctrl_c_detaches_and_leaves_the_job(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Unlike that of `elasticd run`; the exit code is that of a command that was interrupted."""

    def interrupted(*args: object, **more: object) -> JobStatus:
        raise KeyboardInterrupt

    monkeypatch.setattr(attaching, "follow_job", interrupted)
    assert main(["attach", JOB]) == 130
    assert f"detached; job {JOB} goes on" in capfd.readouterr().err
    assert store.list(KEYS.wants(JOB)).items == ()


def test_attach_to_a_job_that_is_over_tells_how_it_ended(
    store: MemoryStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """There is nothing left to follow."""
    put(store, KEYS.status(JOB), FAILED)
    assert main(["attach", JOB]) == 7
    shown = capfd.readouterr()
    assert shown.out == "" and "attached" not in shown.err
    assert "[elasticd] job failed: rank 0 raised" in shown.err
