"""The records that a listing leaves out, because this elasticd cannot read them.

While a cluster is upgraded, some of its records may be of a newer schema. An older command shows
all others, and names those that it left out; to refuse the whole listing would hide what goes on.
Where a record decides something, as in `drain --wait`, it is refused instead.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from elasticd.errors import NotSupported
from elasticd.records.codec import decode
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.store.api import KeyValue

__all__ = ["UnreadableRecords", "readable_nodes"]

NAMED = 3


class UnreadableRecords:
    """Collects what is left out, in the order in which it was met."""

    def __init__(self) -> None:
        self._whys: dict[str, str] = {}

    @contextmanager
    def left_out(self, what: str) -> Iterator[None]:
        """Leave out `what`, as in "job j", if the body meets a record that cannot be read."""
        try:
            yield
        except NotSupported as exc:
            self._whys.setdefault(what, str(exc))

    @property
    def clause(self) -> str:
        """Return what is left out, and why its first one is; empty if nothing is."""
        if not self._whys:
            return ""
        more = len(self._whys) - NAMED
        named = ", ".join(list(self._whys)[:NAMED]) + (f" and {more} more" if more > 0 else "")
        are = "is" if len(self._whys) == 1 else "are"
        return f"{named} {are} left out: {next(iter(self._whys.values())).rstrip('.')}"

    @property
    def sentence(self) -> str:
        clause = self.clause
        return f"{clause[0].upper()}{clause[1:]}." if clause else ""


def readable_nodes(
    items: Iterable[KeyValue], keys: Keys, unreadable: UnreadableRecords
) -> list[Node]:
    """Return the nodes of records under `nodes/`; `unreadable` notes those that it leaves out."""
    found = []
    for item in items:
        with unreadable.left_out(f"node {item.key.removeprefix(keys.nodes)}"):
            found.append(decode(Node, item.value))
    return found
