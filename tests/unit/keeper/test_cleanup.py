"""Deletes after commits, in a thread that outlives a storage that fails."""

import os
from pathlib import Path

import pytest

from elasticd.checkpoint.retention.policy import Retention
from elasticd.errors import Unavailable
from elasticd.keeper import cleanup as housekeeping_module
from elasticd.keeper.cleanup import Cleanup
from tests.fixtures.cluster import until
from tests.unit.checkpoint.meddling import Meddling
from tests.unit.checkpoint.stock_case import Maker


def test_each_commit_is_tidied_up_after(tmp_path: Path) -> None:
    """Nothing before the first; then what the policy says stays, entries and objects."""
    maker = Maker.of(tmp_path, steps=4)
    housekeeping = Cleanup(maker.bucket, Retention(last=2))
    assert maker.folders() == [10, 20, 30, 40]
    for step in (50, 60):
        maker.save(step)
        housekeeping.committed()
        until(lambda: maker.folders() == [step - 10, step], maker.folders)  # noqa: B023
    assert len(maker.numbers()) == 2


@pytest.mark.parametrize("error", [Unavailable("It is away."), ZeroDivisionError("our bug")])
def test_storage_that_fails_is_tidied_up_after_the_next_commit(
    tmp_path: Path, error: Exception
) -> None:
    """Whatever was raised, and wherever."""
    maker = Maker.of(tmp_path, steps=4)
    raised: list[str] = []

    def before(verb: str, name: str) -> None:
        if not raised or (len(raised) < 2 and verb == "delete"):
            raised.append(verb)
            raise error

    housekeeping = Cleanup(Meddling(maker.bucket, before), Retention(last=2))
    for count in (1, 2):
        housekeeping.committed()
        until(lambda: len(raised) == count, lambda: raised)  # noqa: B023
    maker.save(50)
    housekeeping.committed()
    until(lambda: 30 not in maker.folders(), maker.folders)
    assert maker.folders()[-2:] == [40, 50]


def test_what_crashes_left_is_swept_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload that was never committed, of a step that cannot be any more, if it is old."""
    maker = Maker.of(tmp_path, steps=2)
    abandoned, _ = maker.put(25)
    maker.save(30)
    folder = tmp_path / abandoned.folder
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    housekeeping = Cleanup(maker.bucket, Retention(last=2))
    housekeeping.committed()
    until(lambda: maker.folders() == [20, 25, 30], maker.folders)
    monkeypatch.setattr(housekeeping_module, "SWEEP_S", 0.0)
    housekeeping.committed()
    until(lambda: not folder.exists(), maker.folders)
    assert maker.folders() == [20, 30]
