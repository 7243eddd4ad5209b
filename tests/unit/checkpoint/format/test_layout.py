"""Names of objects: made of numbers, read back, and leading nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.checkpoint.format.layout import (
    Snapshot,
    entry_name,
    fragment_name,
    is_part_name,
    part_name,
)

SNAPSHOTS = st.builds(
    Snapshot,
    run=st.integers(0, 10**9 - 1),
    generation=st.integers(0, 10**12 - 1),
    step=st.integers(0, 10**15 - 1),
)


@given(SNAPSHOTS)
def test_folder_of_any_snapshot_reads_back(snapshot: Snapshot) -> None:
    """At the limits too."""
    assert Snapshot.of_folder(snapshot.folder.removeprefix("steps/")) == snapshot
    assert snapshot.manifest.startswith(f"{snapshot.folder}/")


@given(SNAPSHOTS, SNAPSHOTS)
def test_no_two_snapshots_share_a_folder(one: Snapshot, other: Snapshot) -> None:
    """Else one would overwrite nothing and load the other."""
    assert (one.folder == other.folder) == (one == other)


@pytest.mark.parametrize(
    "name",
    [
        "", "..", "000000000010-000001-00000001/..", "x000000000010-000001-00000001",
        "10-1-1", "000000000010-000001", "000000000010-000001-00000001\n",
        "0000000000010-000001-00000001", "000000000010-0000001-00000001",
        "\u0660" * 12 + "-000001-00000001", "-00000000010-000001-00000001",
    ],
)  # fmt: skip
def test_other_names_are_no_folders_of_ours(name: str) -> None:
    """Also those with a zero too many, which would name a snapshot whose folder is another."""
    assert Snapshot.of_folder(name) is None


@given(st.integers(0, 10**6), st.integers(0, 1), st.integers(0, 2**32 - 1), st.integers(0, 10**6))
def test_every_name_of_a_part_is_one(share: int, holder: int, writer: int, index: int) -> None:
    """Up to the limits of a manifest."""
    assert is_part_name(part_name(share, holder, f"{writer:08x}", index))


def test_names_sort_as_their_numbers_do() -> None:
    """A listing, which people look at, is in order."""
    numbers = [1, 9, 10, 99, 100, 12345]
    assert sorted(map(entry_name, numbers)) == [entry_name(number) for number in numbers]
    made = Snapshot(run=1, generation=1, step=1)
    assert fragment_name(made, 3, 1) == "steps/000000000001-000001-00000001/00003-1.json"
