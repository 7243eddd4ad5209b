"""Hosts that call the same job with other flags are refused, or told what does not count."""

from dataclasses import replace

import pytest

from elasticd.control.same_job import check_same, ignored_flags
from elasticd.errors import Refused
from elasticd.records.account.late import OnLate
from elasticd.records.checkpoint import CheckpointSpec, Every
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec, Limits

SAVED = CheckpointSpec(url="s3://b/one", owner="j")
FIRST = JobSpec(
    name=JobName("j"),
    uid="one",
    entry_kind=EntryKind.SCRIPT,
    entry="t.py",
    checkpoint=SAVED,
    is_local=True,
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"entry": "u.py"}, "entry is 't.py', not 'u.py'"),
        ({"args": ("--lr", "2")}, "args is"),
        ({"max_nodes": 9}, "max_nodes is 1, not 9"),
        ({"checkpoint": replace(SAVED, url="s3://b/two")}, "not 's3://b/two'"),
        ({"checkpoint": None}, "checkpoint is 's3://b/one', not ''"),
    ],
)
def test_another_training_is_refused(change: dict[str, object], said: str) -> None:
    """It would write into the first one's checkpoints, or none would be written of it."""
    with pytest.raises(Refused) as refused:
        check_same(FIRST, replace(FIRST, uid="two", **change))  # type: ignore[arg-type]
    assert said in str(refused.value)


def test_flags_that_do_not_count_are_named() -> None:
    """All of them, by what the user wrote; each host has its own folders."""
    other = replace(
        FIRST,
        uid="two",
        cwd="/elsewhere",
        run_folder="/logs",
        env={"A": "1"},
        limits=Limits(user_error=9),
        on_nan="stop",
        log_max_bytes=1 << 20,
        submitted_by="another@host",
        submitted_at_unix_s=1.0,
        on_late=OnLate.DRAIN,
        shutdown_timeout_s=1.0,
        failure_timeout_s=1.0,
        checkpoint=replace(SAVED, every=Every(steps=5), keep_last=1, mirror_bytes_per_s=10**9),
    )
    check_same(FIRST, other)
    assert set(ignored_flags(FIRST, other)) == {
        "--env",
        "--max-restarts",
        "--on-nan",
        "--log-max",
        "--on-late",
        "--shutdown-timeout",
        "--checkpoint-every",
        "--checkpoint-keep",
        "--mirror-bandwidth",
    }
    assert ignored_flags(FIRST, replace(FIRST, uid="three", cwd="/x")) == ()
