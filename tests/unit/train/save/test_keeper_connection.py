"""How long a worker looks for its keeper."""

import pytest

from elasticd.errors import Unavailable
from elasticd.keeper.client import CONNECT_LIMIT_S
from elasticd.train.save import keeper_connection
from elasticd.train.save.keeper_connection import BRIEF_LIMIT_S, Keeper


def test_only_what_is_awaited_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first connection, and those of a restore; a training step is not held up."""
    limits: list[float] = []
    monkeypatch.setattr(keeper_connection, "Client", lambda name, limit_s: limits.append(limit_s))
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
