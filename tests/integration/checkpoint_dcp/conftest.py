"""Four ranks for all tests of a module."""

from collections.abc import Iterator

import pytest

from tests.fixtures.ranks import Cast
from tests.integration.checkpoint_dcp.troupe import Troupe


@pytest.fixture(scope="module")
def troupe() -> Iterator[Troupe]:
    with Cast() as cast:
        yield Troupe(cast, 4)
