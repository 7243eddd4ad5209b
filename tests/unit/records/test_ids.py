"""Names and lives."""

import pytest

from elasticd.errors import CallError
from elasticd.records.ids import Life, checked_name, incarnation_of, life_of


def test_life_of_an_incarnation_is_the_process_that_it_belongs_to() -> None:
    """An accusation concerns all memberships of one process."""
    life = Life("a1b2")
    assert incarnation_of(life, 1) != incarnation_of(life, 2)
    assert life_of(incarnation_of(life, 12)) == life


@pytest.mark.parametrize("name", ["a", "node-1", "gpu_2.rack.3", "A" * 63])
def test_usual_names_are_taken(name: str) -> None:
    """They can be a key segment and a folder name."""
    assert checked_name("Job", name) == name


@pytest.mark.parametrize("name", ["", "a/b", "..", "-a", "a-", "a b", "ä", "A" * 64, "a\n"])
def test_names_that_would_be_another_key_or_folder_are_refused(name: str) -> None:
    """With what to take instead."""
    with pytest.raises(CallError, match="1 to 63 letters"):
        checked_name("Job", name)
