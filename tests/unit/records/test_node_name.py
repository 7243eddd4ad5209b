"""The id of a node by its name in Kubernetes."""

import pytest

from elasticd.records.ids import checked_name
from elasticd.records.node_name import LENGTH_LIMIT, node_id_of


def test_a_name_that_fits_is_its_own_id() -> None:
    """Who looks for a node finds it by the name that `kubectl get nodes` prints."""
    for name in ("gpu-7", "ip-10-0-1-2.eu-west-1.compute.internal", "n" * LENGTH_LIMIT):
        assert node_id_of(name) == name


@pytest.mark.parametrize("end", ["", "-", ".", "-.-"])
def test_a_long_name_becomes_one_that_can_be_a_key(end: str) -> None:
    """Also where the cut falls behind a dash or a dot."""
    name = "a" * (53 - len(end)) + end + "b" * 200
    found = node_id_of(name)
    assert checked_name("node", found) == found
    assert found.startswith("a" * 40)


def test_two_long_names_of_one_beginning_are_two_nodes() -> None:
    """Else the second one's agent would be refused; and each is the same after a restart."""
    names = ["pool-" + "x" * 60 + f"-{number}" for number in range(50)]
    assert len({node_id_of(name) for name in names}) == 50
    assert node_id_of(names[0]) == node_id_of(names[0])
    assert all(len(node_id_of(name)) <= LENGTH_LIMIT for name in names)
