"""What the tests of the operator begin with."""

from collections.abc import Iterator

import pytest

from tests.fixtures.operator_scene import OperatorScene


@pytest.fixture
def scene() -> Iterator[OperatorScene]:
    """A Kubernetes and an etcd in memory, with no job yet."""
    scene = OperatorScene()
    yield scene
    scene.close()
