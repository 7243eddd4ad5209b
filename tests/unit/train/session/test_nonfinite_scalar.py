"""A loss that is NaN is said, once."""

import math

import pytest

from elasticd.train.session.nonfinite_scalar import TOLD_LIMIT, FiniteCheck


def test_each_number_that_is_not_finite_is_said_once() -> None:
    """With its name and step, whatever comes after it."""
    said: list[str] = []
    check = FiniteCheck(said.append)
    check.check({"loss": 0.5, "norm": 1e300}, 3)
    assert said == []
    check.check({"loss": math.nan, "norm": 2.0}, 4)
    check.check({"loss": math.nan, "norm": -math.inf}, 5)
    check.check({"loss": 0.5, "norm": 2.0}, 6)
    check.check({"loss": math.nan, "norm": math.inf}, 7)
    assert [text.split(" is not")[0] for text in said] == [
        "commit(loss=nan) at step 4",
        "commit(norm=-inf) at step 5",
    ]


def test_new_names_for_ever_fill_no_log() -> None:
    """A script that puts the step's number into the name."""
    said: list[str] = []
    check = FiniteCheck(said.append)
    for step in range(10 * TOLD_LIMIT):
        check.check({f"loss-{step}": math.nan}, step)
    assert len(said) == TOLD_LIMIT


def test_it_is_said_on_stderr_and_no_full_disk_stops_the_heartbeat(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the worker's log goes; `elasticd run` shows that of rank 0."""
    FiniteCheck().check({"loss": math.nan}, 4)
    assert capsys.readouterr().err.startswith("elasticd: commit(loss=nan) at step 4 is not")

    def full(text: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sys.stderr.write", full)
    FiniteCheck().check({"loss": math.nan}, 4)
