"""The immutable mapping."""

from hypothesis import given
from hypothesis import strategies as st

from elasticd.rendezvous.persistent_map import PersistentMap

STEPS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers() | st.none()))


@given(STEPS)
def test_map_is_a_dict_whose_old_versions_stay(steps: list[tuple[str, int | None]]) -> None:
    """Against the plain dict, with every version compared at the end."""
    table: PersistentMap[int] = PersistentMap()
    plain: dict[str, int] = {}
    versions = []
    for key, value in steps:
        if value is None:
            table = table.without(key)
            plain.pop(key, None)
        else:
            table = table.with_item(key, value)
            plain[key] = value
        versions.append((table, dict(plain)))
    for version, expected in versions:
        assert list(version.items()) == sorted(expected.items())
        assert len(version) == len(expected) and version == PersistentMap(expected.items())
        assert all(version.get(key) == expected.get(key) for key in "abcdefgh")


def test_iteration_is_sorted_by_key() -> None:
    """So that no hash seed leaks into a decision."""
    table = PersistentMap((f"node-{i}", i) for i in range(50, 0, -1))
    assert [key for key, _ in table.items()] == sorted(f"node-{i}" for i in range(1, 51))


def test_key_that_is_not_there_changes_nothing() -> None:
    """Not even the object."""
    table = PersistentMap([("a", 1)])
    assert table.without("b") is table and "b" not in table and "a" in table
