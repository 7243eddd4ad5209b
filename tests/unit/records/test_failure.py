"""What a failure counts as."""

import dataclasses

import pytest

from elasticd.records.failure import Failure, signal_name, signal_number
from elasticd.records.reason import Cause, Reason
from tests.unit.rendezvous.cases import failure


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (failure(), Reason.WORKER_FAILED),
        (failure(signal="SIGSEGV"), Reason.WORKER_FAILED),
        (failure(signal="SIGKILL"), Reason.WORKER_KILLED),
        (failure(signal="SIGTERM"), Reason.WORKER_KILLED),
        (failure(is_secondary=True), Reason.COLLECTIVE_BROKEN),
    ],
)
def test_reason_follows_from_how_it_ended(value: Failure, reason: Reason) -> None:
    """A kill from outside is not the script's fault, an echo is not a cause."""
    assert value.reason is reason


def test_only_the_script_s_own_faults_are_user_errors() -> None:
    """The others are paid for as lost nodes."""
    assert failure().reason.cause is Cause.USER_ERROR
    assert failure(signal="SIGKILL").reason.cause is Cause.NODE_LOSS


def test_same_error_is_the_same_exception_at_the_same_line() -> None:
    """And nothing is like a failure that left no line."""
    assert failure().is_same_error(failure(1, generation=4))
    assert not failure().is_same_error(failure(where="/x/train.py:4"))
    assert not failure().is_same_error(dataclasses.replace(failure(), exception="KeyError: 1"))
    assert not failure(signal="SIGKILL").is_same_error(failure(signal="SIGKILL"))


def test_ending_is_said_by_name() -> None:
    """For people."""
    assert failure(signal="SIGSEGV").ending == "killed by SIGSEGV"
    assert failure().ending == "exit code 1"
    assert dataclasses.replace(failure(), exit_code=None).ending == "not started", (
        "never 'exit code None'"
    )


@pytest.mark.parametrize(("code", "name"), [(-9, "SIGKILL"), (-40, "signal 40"), (-34, "SIGRTMIN")])
def test_signal_has_a_name_or_its_number(code: int, name: str) -> None:
    """Most real-time signals have no name, and Python raises for them."""
    assert signal_name(code) == name and signal_number(name) == -code
    assert signal_name(1) == "" and signal_number("of a newer version") == 0
