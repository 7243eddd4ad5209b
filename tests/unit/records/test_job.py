"""The budget and the merging of wishes."""

from collections.abc import Mapping

import pytest

from elasticd.records.ids import JobName
from elasticd.records.job import Budget, EntryKind, JobSpec, Limits, Want, target_nodes
from elasticd.records.reason import Cause, Phase, Reason

SPEC = JobSpec(
    name=JobName("j"),
    uid="1",
    entry_kind=EntryKind.SCRIPT,
    entry="x.py",
    min_nodes=2,
    max_nodes=6,
)


def test_budget_counts_each_cause_by_itself() -> None:
    """Split by cause, so that a preempted machine costs the script nothing."""
    budget = Budget().charged(Cause.USER_ERROR).charged(Cause.USER_ERROR).charged(Cause.RESIZE)
    assert budget == Budget(user_error=2, resize=1)


@pytest.mark.parametrize(
    ("limit", "used", "is_spent"),
    [(0, 0, True), (3, 2, False), (3, 3, True), (3, 9, True), (-1, 1000, False)],
)
def test_budget_is_spent_when_one_more_change_would_go_over_its_limit(
    limit: int, used: int, is_spent: bool
) -> None:
    """0 allows none, -1 any number."""
    limits = Limits(user_error=limit)
    assert Budget(user_error=used).is_spent(Cause.USER_ERROR, limits) is is_spent


OPERATOR = Want(writer="operator", nodes=4)


@pytest.mark.parametrize(
    ("wants", "nodes"),
    [
        ({}, 6),
        ({"autoscaler": Want(writer="autoscaler", nodes=3)}, 3),
        (
            {
                "autoscaler": Want(writer="autoscaler", nodes=3),
                "user": Want(writer="user", nodes=5),
            },
            5,
        ),
        ({"autoscaler": Want(writer="autoscaler", nodes=3), "operator": OPERATOR}, 4),
        ({"user": Want(writer="user", nodes=5), "operator": OPERATOR}, 5),
        ({"a-stranger": Want(writer="a-stranger", nodes=3)}, 6),
        ({"user": Want(writer="user", nodes=1)}, 2),
        ({"user": Want(writer="user", nodes=99)}, 6),
        ({"user": Want(writer="user", is_stop=True), "operator": OPERATOR}, 4),
    ],
)
def test_wishes_are_merged_into_one_size_between_min_and_max(
    wants: Mapping[str, Want], nodes: int
) -> None:
    """A user's pin wins over the operator's wish, and that over an autoscaler's."""
    assert target_nodes(SPEC, wants) == nodes


def test_every_change_of_world_is_paid_for_by_one_cause() -> None:
    """But the first world, and what is only said of a status or an agent."""
    free = {
        Reason.FIRST_WORLD,
        Reason.BELOW_MIN,
        Reason.STOP_REQUESTED,
        Reason.ALL_SUCCEEDED,
        Reason.BUDGET_SPENT,
        Reason.REPEATED_ERROR,
        Reason.ENDS_JOB,
        Reason.ISOLATED,
        Reason.OTHER,
    }
    assert {reason for reason in Reason if reason.cause is None} == free


def test_three_phases_are_final() -> None:
    """After them nothing more is written of a job."""
    assert {p for p in Phase if p.is_final} == {Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED}


def test_only_a_program_of_its_own_needs_no_torch() -> None:
    """A script under another interpreter is one that may call `elasticd.run`."""

    def needs_no_torch(kind: EntryKind, *args: str) -> bool:
        spec = JobSpec(name=JobName("j"), uid="u", entry_kind=kind, entry="x", args=args)
        return spec.needs_no_torch

    assert needs_no_torch(EntryKind.COMMAND, "--lr", "1")
    assert not needs_no_torch(EntryKind.COMMAND, "-u", "train.py")
    assert not needs_no_torch(EntryKind.SCRIPT)
