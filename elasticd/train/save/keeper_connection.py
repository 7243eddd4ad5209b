"""How a worker reaches its node's keeper: with long time limits where the training waits for the
keeper anyway, with short ones during a step.
"""

from elasticd.keeper.client import CONNECT_LIMIT_S, Client

__all__ = ["Keeper"]

BRIEF_LIMIT_S = 0.2
"""The limit during a step: a keeper that has died is started again by its agent, and tried again
later."""


class Keeper:
    """The address of the keeper with this name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_awaited = True
        """The next connection may take as long as a keeper takes to start; at first it may."""

    def connect(self) -> Client:
        """Connect to the keeper.

        Raises: Unavailable: nobody listens there.
        """
        limit_s = CONNECT_LIMIT_S if self.is_awaited else BRIEF_LIMIT_S
        self.is_awaited = False
        return Client(self._name, limit_s=limit_s)
