"""What stays as a fault left it until it is undone: a cordon, a frozen program, a cut link."""

import time
from collections.abc import Callable

from chaos.site import Blow, Deed

__all__ = ["ActiveFaults", "at_most_every"]


class ActiveFaults:
    """Knows how to undo each, however the run comes to its end."""

    def __init__(self) -> None:
        self._undos: dict[str, Deed] = {}

    def blow(
        self,
        name: str,
        strike: Deed,
        undo: Deed,
        *,
        node: str = "",
        other_node: str = "",
        is_undone: Callable[[], bool] = lambda: True,
    ) -> Blow:
        """Return a fault that stands from its strike on until it is undone, once."""

        def do() -> None:
            self._undos[name] = back
            strike()

        def back() -> None:
            if name in self._undos:
                undo()
                self._undos.pop(name, None)

        return Blow(
            victim=name,
            strike=do,
            undo=back,
            is_undone=is_undone,
            node=node,
            other_node=other_node,
        )

    def undo_all(self) -> None:
        """Undo what stands, the newest first.

        Raises: Exception: the first that an undo raised; the others are undone all the same.
        """
        raised: Exception | None = None
        for undo in reversed(list(self._undos.values())):
            try:
                undo()
            except Exception as exc:
                raised = raised or exc
        if raised is not None:
            raise raised


def at_most_every(each_s: float, ask: Callable[[], bool]) -> Callable[[], bool]:
    """Ask only so often: the runner asks at each of its ticks."""
    next_s = time.monotonic() + each_s

    def is_so() -> bool:
        nonlocal next_s
        if time.monotonic() < next_s:
            return False
        next_s = time.monotonic() + each_s
        return ask()

    return is_so
