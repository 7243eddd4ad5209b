"""Goodput and attainment, by the one formula."""

from elasticd.goodput.cause import TimeCause
from elasticd.goodput.formula import attainment, causes_of, goodput, total

SECONDS = {TimeCause.TRAIN: 60.0, TimeCause.RECOVER: 15.0, TimeCause.SPARE: 25.0}


def test_goodput_is_training_against_all_but_spare_time() -> None:
    assert goodput(SECONDS) == 0.8


def test_attainment_is_training_against_what_was_wanted() -> None:
    assert attainment(SECONDS, 120.0) == 0.5


def test_attainment_is_never_above_goodput() -> None:
    """Agents write at different moments: what all held may be more than one counted as wanted."""
    assert attainment(SECONDS, 74.0) == goodput(SECONDS) == 0.8


def test_of_no_time_there_is_no_share() -> None:
    assert goodput({}) is None
    assert goodput({TimeCause.SPARE: 5.0}) is None
    assert attainment(SECONDS, 0.0) is None


def test_accounts_of_several_nodes_are_added_cause_by_cause() -> None:
    other = {TimeCause.TRAIN: 1.0, TimeCause.DATA: 2.0}
    assert total([SECONDS, other]) == {**SECONDS, TimeCause.TRAIN: 61.0, TimeCause.DATA: 2.0}


def test_a_word_of_a_newer_version_is_unexplained_and_not_lost() -> None:
    plain = {"train": 5, "napping": 2.0, "musing": 1.0, "wait": -1.0}
    assert causes_of(plain) == {
        TimeCause.TRAIN: 5.0,
        TimeCause.UNEXPLAINED: 3.0,
        TimeCause.WAIT: 0.0,
    }
