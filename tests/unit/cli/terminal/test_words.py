"""Sentences for people."""

import dataclasses

import pytest

from elasticd.cli.terminal import words
from elasticd.cli.terminal.time_words import shares_line, time_sentence
from elasticd.control.follow import JobEnded, WorldFormed
from elasticd.control.local_run.last_checkpoint import CheckpointAwaited, CheckpointLost
from elasticd.control.local_run.session import Stopping
from elasticd.control.report.change_report import ChangeReport
from elasticd.control.report.job_time import JobTime
from elasticd.control.report.report import JobReport
from elasticd.goodput.cause import TimeCause
from elasticd.records.account.progress import RankProgress
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Nonce, Rank, Slot
from elasticd.records.job import EntryKind, JobSpec, JobStatus
from elasticd.records.reason import Cause, Phase, Reason
from tests.unit.control.world_case import world

FAILURE = Failure(
    node=NodeId("n1"),
    incarnation=Incarnation("i"),
    host="gpu-1",
    generation=Generation(2),
    rank=Rank(3),
    local_rank=1,
    slot=Slot(1),
    nonce=Nonce(1),
    exit_code=1,
    exception="ValueError: too hot",
    traceback="\n".join(f"line {number}" for number in range(40)),
    log_path="/runs/j/gen-2/rank-3.err",
)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_sentence_of_its_own(reason: Reason) -> None:
    """A new one must not be told by its code word."""
    assert reason in words.BECAUSE


def test_every_cause_is_named() -> None:
    """In the summary."""
    assert set(words.CAUSES) == set(Cause)


def test_a_failure_names_rank_host_ending_and_log_last() -> None:
    """Not the whole traceback, but its end, where the exception stands."""
    lines = words.failure_lines(FAILURE)
    assert lines[0] == "last failure: rank 3 on gpu-1 (n1), generation 2: exit code 1"
    assert lines[-2:] == ["line 39", "full log: /runs/j/gen-2/rank-3.err"]
    assert lines[1] == "  ..." and len(lines) == words.TRACEBACK_LINES + 3


def test_traceback_that_is_cut_begins_with_a_frame() -> None:
    """And not with the signs below a line that nobody sees."""
    frames = [part for n in range(9) for part in (f'  File "f{n}.py", line 1', "    x", "    ^")]
    long = "\n".join(["Traceback (most recent call last):", *frames, "ValueError: too hot"])
    lines = words.failure_lines(dataclasses.replace(FAILURE, traceback=long))
    assert lines[1:3] == ["  ...", '  File "f5.py", line 1'] and lines[-2] == "ValueError: too hot"
    short = "Traceback (most recent call last):\nValueError: too hot"
    lines = words.failure_lines(dataclasses.replace(FAILURE, traceback=short))
    assert lines[1:3] == short.splitlines()


def test_numbers_that_a_script_told_are_no_commits() -> None:
    """In restart mode there are none, and nobody may take the one for the other."""
    told = RankProgress(
        rank=Rank(0), generation=Generation(1), step=7, is_told=True, committed_ago_s=2.0
    )
    assert words.standing([told]) == ["training: step 7; it said so 2.00 s ago"]
    counted = dataclasses.replace(told, epoch=3)
    assert words.standing([counted])[0].startswith("training: step 7, epoch 3;")


@pytest.mark.parametrize(
    ("epoch", "epochs", "text"),
    [
        (0, 0, ""),
        (0, 10, "epoch 1/10"),
        (2, 0, "epoch 3"),
        (9, 10, "epoch 10/10"),
        (10, 10, "epoch 10/10"),
    ],
)
def test_first_epoch_is_number_1_in_each_view(epoch: int, epochs: int, text: str) -> None:
    """It is number 0 for the script; and after the last one there is none."""
    rank = RankProgress(rank=Rank(0), generation=Generation(1), step=7, epoch=epoch, epochs=epochs)
    assert words.epoch_of(rank) == text


def test_a_change_of_world_is_one_line_with_its_culprit() -> None:
    """Who was first, and how."""
    text = words.change_of(Reason.WORKER_FAILED, FAILURE, ())
    assert text == "a worker failed: rank 3 on gpu-1 (n1), exit code 1, ValueError: too hot"
    full = dataclasses.replace(
        FAILURE, exception="OSError: [Errno 28] No space left on device: '/data/x'"
    )
    text = words.change_of(Reason.WORKER_FAILED, full, ())
    assert text.endswith("No space left on device: '/data/x': a disk of gpu-1 is full")
    assert words.change_of(Reason.NODE_LOST, None, ("b", "c")).endswith(": b, c")
    line = words.news_line(WorldFormed(world=world(2, "a", "b", reason=Reason.JOINED)))
    assert line == "generation 2: 2 nodes, 2 workers (nodes joined)"
    formed = WorldFormed(world=world(2, "a", "b", reason=Reason.JOINED), has_no_new_node=True)
    assert words.news_line(formed) == "generation 2: 2 nodes, 2 workers (workers joined)"


def test_a_hang_says_where_the_stacks_are() -> None:
    """They are why somebody reads this at night."""
    hung = dataclasses.replace(FAILURE, is_hung=True, exception="It is stopped.", log_path="/r/s")
    assert words.change_of(Reason.WORKER_HUNG, hung, ()).endswith("It is stopped. Stacks: /r/s")


def test_running_job_says_how_far_it_is_and_how_long_ago() -> None:
    """What is suspicious is for the reader to judge: a step takes 0.1 s, the last was 7 s ago."""
    plain = RankProgress(rank=Rank(0), generation=Generation(2))
    told = dataclasses.replace(
        plain,
        step=21,
        steps=100,
        epoch=3,
        epochs=10,
        step_s=0.12,
        committed_ago_s=7.0,
        scalars={"loss": 0.25},
        why_paused="test",
        not_finite={"norm": 4},
    )
    assert words.standing([told]) == [
        (
            "training: step 21/100, epoch 4/10, loss 0.25; 8.33 steps/s; "
            "the last commit was 7.00 s ago; paused: test"
        ),
        "norm was not finite, first seen at step 4",
    ]
    assert words.standing([dataclasses.replace(plain, output_ago_s=300.0)]) == [
        "training: steps are not known here; rank 0 last wrote 5 min ago"
    ]
    assert words.standing([]) == []


def test_the_end_is_told_by_its_message() -> None:
    """Or by its reason if there is none."""
    status = JobStatus(phase=Phase.FAILED, reason=Reason.BUDGET_SPENT)
    assert words.news_line(JobEnded(status=status)) == "job failed: the restart budget is spent"


def test_running_job_is_not_told_by_why_its_world_began() -> None:
    """That may be a week ago, and stands with the generation."""
    status = JobStatus(phase=Phase.RUNNING, reason=Reason.JOINED, generation=Generation(3))
    assert words.ending(status) == "job running: generation 3"


@pytest.mark.parametrize(
    ("value", "text"), [(0.004, "4 ms"), (0.25, "0.25 s"), (12.0, "12.00 s"), (250.0, "250 s")]
)
def test_durations_are_short(value: float, text: str) -> None:
    """Three digits say enough."""
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value_s", "text"),
    [(-3.0, "0 s"), (59.9, "59 s"), (300, "5 min"), (12_060, "3 h 21 min"), (172_800, "2 d")],
)
def test_long_times_are_said_in_units_of_a_day(value_s: float, text: str) -> None:
    """A clock that is behind makes none of them negative."""
    assert words.duration(value_s) == text


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 bytes"), (1_234, "1.2 kB"), (3_400_000, "3.4 MB"), (7e9, "7.0 GB")]
)
def test_sizes_are_never_nought_by_rounding(nbytes: float, text: str) -> None:
    """Nobody wants to read of 0.0 MiB."""
    assert words.size_of(int(nbytes)) == text


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [
        (1.2e9, 3e9, ": 1.2 of 3.0 GB"),
        (0, 64e6, ": 0.0 of 64.0 MB"),
        (7, 9, ": 7 of 9 bytes"),
        (0, 0, ""),
    ],
)
def test_who_waits_for_the_last_checkpoint_is_told_how_far_it_is(
    done: float, total: float, text: str
) -> None:
    """And how not to wait."""
    news = CheckpointAwaited(done_bytes=int(done), total_bytes=int(total))
    said = words.news_line(news)
    assert said == f"waiting for the last checkpoint{text} (Ctrl-C twice gives it up)"
    assert "given up" in words.news_line(CheckpointLost(is_given_up=True))
    assert "keeper.log" in words.news_line(CheckpointLost(is_given_up=False))


@pytest.mark.parametrize(("name", "again"), [("SIGINT", "press"), ("SIGTERM", "send it")])
def test_second_signal_is_named_as_it_is_given(name: str, again: str) -> None:
    """Ctrl-C is a key; SIGTERM and the closed terminal's SIGHUP are not."""
    said = words.news_line(Stopping(signal=name))
    assert said == f"{name}: stopping the job gracefully; {again} again to kill now"


@pytest.mark.parametrize(
    ("lost", "text"),
    [(0, "0 steps done again"), (1, "1 step done again"), (89, "89 steps done again")],
)
def test_change_says_how_many_steps_were_done_again(lost: int, text: str) -> None:
    """In flight or since a checkpoint: both are steps."""
    change = ChangeReport(
        generation=Generation(2),
        reason=Reason.WORKER_KILLED,
        culprit=None,
        lost=(),
        joined=(),
        nodes=1,
        told=1,
        world_size=1,
        phases_s={},
        unnoticed_s=0.0,
        at_unix_s=0.0,
        step=1,
        lost_steps=lost,
    )
    assert words.progress(change) == f"at step 1, {text}"


def test_summary_names_what_its_seconds_leave_out() -> None:
    """A lease that had to run out, a hang; in restart mode the script's own way back."""
    spec = JobSpec(name=JobName("j"), uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py")
    change = ChangeReport(
        generation=Generation(2),
        reason=Reason.NODE_LOST,
        culprit=None,
        lost=(),
        nodes=1,
        world_size=1,
        phases_s={"agree": 0.25},
        unnoticed_s=5.0,
        at_unix_s=0.0,
    )
    for is_in_process, text in (
        (True, "not in it: 5.00 s without a step before they were noticed"),
        (False, "not in it: the time until a failure could be noticed, and what the script needs"),
    ):
        status = JobStatus(is_in_process=is_in_process)
        report = JobReport(spec=spec, status=status, changes=(change,))
        lines = words.summary_lines(report, "/runs/j")
        at = lines.index("time in agreement and start-up: 0.25 s (agree 0.25 s)")
        assert lines[at + 1].startswith(text)


def test_changes_that_etcd_no_longer_has_are_said_to_be_in_the_file() -> None:
    """Not passed over, as if the job had begun later."""
    spec = JobSpec(name=JobName("j"), uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py")
    first = ChangeReport(
        generation=Generation(801),
        reason=Reason.JOINED,
        culprit=None,
        lost=(),
        nodes=1,
        world_size=1,
        phases_s={},
        at_unix_s=0.0,
    )
    report = JobReport(spec=spec, status=JobStatus(), changes=(first,))
    gone = (
        "generations 1 to 800 are no longer in etcd: incidents.jsonl in the job's folder on its "
        "nodes has them"
    )
    assert words.unkept_lines(report) == [gone]
    assert gone in words.summary_lines(report, "/runs/j")
    whole = dataclasses.replace(first, generation=Generation(1))
    assert not words.unkept_lines(dataclasses.replace(report, changes=(whole,)))


def test_account_that_was_not_written_to_its_end_is_said_to_be_so() -> None:
    """Instead of a goodput near 0 where the agents of a short run were killed."""
    seconds = {TimeCause.TRAIN: 15.0, TimeCause.START: 5.0}
    time = JobTime(seconds=seconds, has_steps=True, unwritten_agents=1, unwritten_s=15.0)
    missing = "of 1 agent the last account was not written"
    assert time_sentence(time) == (
        f"goodput 75.0% of the time of all slots but spare ones; {missing}"
    )
    time = dataclasses.replace(time, unwritten_agents=2, unwritten_s=30.0)
    missing = "of 2 agents the last account was not written"
    assert time_sentence(time) == f"goodput: not known, since {missing}"
    assert shares_line(time) == ""
    assert time_sentence(JobTime(seconds={})) == "goodput: no slot had any time yet"


def test_summary_says_where_the_time_went() -> None:
    """In one line: the share that trained, and what cost most; nothing where nobody wrote it."""
    spec = JobSpec(name=JobName("j"), uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py")
    report = JobReport(spec=spec, status=JobStatus())
    assert not any("goodput" in line for line in words.summary_lines(report, "/runs/j"))
    spent = {TimeCause.TRAIN: 75.0, TimeCause.START: 20.0, TimeCause.WAIT: 5.0}
    time = JobTime(seconds=spent, has_steps=True)
    lines = words.summary_lines(dataclasses.replace(report, time=time), "/runs/j")
    shares = "train 75.0%, start 20.0%, wait 5.0%"
    assert f"goodput 75.0% ({shares}; `elasticd why` has all)" in lines
