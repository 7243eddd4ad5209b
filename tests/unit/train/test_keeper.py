"""How long a worker looks for its keeper."""

import pytest

from elasticd.checkpoint.keeper.client import CONNECT_LIMIT_S
from elasticd.errors import Unavailable
from elasticd.train import keeper
from elasticd.train.keeper import BRIEF_LIMIT_S, Keeper


def test_only_what_is_awaited_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first connection, and those of a restore; a training step is not held up."""
    limits: list[float] = []
    monkeypatch.setattr(keeper, "Client", lambda name, limit_s: limits.append(limit_s))
    one = Keeper("name")
    one.connect()
    one.connect()
    one.is_awaited = True
    one.connect()
    one.connect()
    assert limits == [CONNECT_LIMIT_S, BRIEF_LIMIT_S, CONNECT_LIMIT_S, BRIEF_LIMIT_S]


def test_nobody_there_is_said() -> None:
    """It is not a reason to end."""
    one = Keeper("elasticd-test-nobody")
    one.is_awaited = False
    with pytest.raises(Unavailable, match=r"keeper\.log"):
        one.connect()
