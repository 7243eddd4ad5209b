"""Which streams are shown: torchrun's rules, over a whole job."""

import pytest

from elasticd.control.logs.console import (
    ERR,
    OUT,
    ConsoleChoice,
    RankChoice,
    parse_filter,
    parse_streams,
)
from elasticd.errors import CallError

BOTH = OUT | ERR


def test_rank_0_alone_is_shown_as_it_was_printed() -> None:
    """A job spans nodes; the rest is in the run folder."""
    choice = ConsoleChoice()
    assert choice.streams(0, 0) == BOTH
    assert choice.streams(1, 0) == choice.streams(1, 1) == 0
    assert not choice.has_prefix


def test_redirected_streams_are_not_shown() -> None:
    """`-r 1`: stdout to the file only."""
    choice = ConsoleChoice(redirects=parse_streams("-r", "1"))
    assert choice.streams(0, 0) == ERR


def test_tee_shows_every_rank_with_a_prefix_and_wins_over_redirects() -> None:
    """As in torchrun, where a stream in both is shown."""
    choice = ConsoleChoice(redirects=parse_streams("-r", "3"), tee=parse_streams("-t", "3"))
    assert choice.streams(7, 1) == BOTH
    assert choice.has_prefix


def test_a_filter_shows_its_local_ranks_of_each_node_and_no_other() -> None:
    """Also if --tee names more."""
    choice = ConsoleChoice(local_ranks=parse_filter("1,2"), tee=parse_streams("-t", "3"))
    assert choice.streams(0, 0) == 0
    assert choice.streams(9, 1) == BOTH


def test_ranks_can_be_chosen_over_the_whole_job() -> None:
    """`elasticd logs --rank`."""
    choice = RankChoice(ranks=frozenset({3}))
    assert (choice.streams(3, 0), choice.streams(0, 0), choice.has_prefix) == (BOTH, 0, False)


@pytest.mark.parametrize("text", ["4", "0:4", "x", "0:1,", "-1", "0:1;1:1"])
def test_other_forms_of_streams_are_refused(text: str) -> None:
    """With the forms that there are."""
    with pytest.raises(CallError, match="LOCAL_RANK:STREAMS"):
        parse_streams("--tee", text)
