"""What the progress line says, part by part, and how much of it fits into a terminal. Pure.

Each part has a long form for people who have room, and shorter ones. A line that is too long is
made shorter by one form at a time, in one fixed order, until it fits: so 80 columns show all that a
person looks for first, and 60 what they need to decide whether to wait. Rejected: to cut at the
right, which lost the goodput and the age of the checkpoint wherever a rate and a loss were known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from unicodedata import combining, east_asian_width

__all__ = ["LinePart", "PartName", "fitted", "whole"]

WIDE, NARROW = " | ", ", "
"""What stands between two parts, and what stands there if that does not fit."""


class PartName(StrEnum):
    """What a part is about."""

    STANDING = "standing"
    """How far it is: the first part, which always stands."""
    PAUSE = "pause"
    EPOCH = "epoch"
    RATE = "rate"
    END = "end"
    SCALAR = "scalar"
    """The first of the script's own numbers, mostly the loss."""
    MORE = "more"
    """Its other numbers."""
    SIZE = "size"
    GOODPUT = "goodput"
    CHECKPOINT = "checkpoint"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class LinePart:
    """One part of the line: its name, and its forms from the longest to the shortest."""

    name: PartName
    forms: tuple[str, ...]

    @property
    def text(self) -> str:
        return self.forms[0]


SHORTER: tuple[PartName | None, ...] = (
    PartName.COMMIT,
    PartName.MORE,
    PartName.CHECKPOINT,
    PartName.END,
    PartName.SIZE,
    PartName.RATE,
    PartName.GOODPUT,
    PartName.CHECKPOINT,
    PartName.SIZE,
    PartName.RATE,
    PartName.SCALAR,
    None,
    PartName.STANDING,
    PartName.END,
    PartName.SIZE,
    PartName.CHECKPOINT,
    PartName.GOODPUT,
    PartName.END,
    PartName.RATE,
    PartName.EPOCH,
    PartName.PAUSE,
)
"""What gets shorter next, the least missed first; after its last form a part is left out, but for
the first one.

None stands for the narrow separator.
"""


def whole(parts: Sequence[LinePart]) -> str:
    """Return all that is known, as a sentence for a log."""
    return NARROW.join(part.text for part in parts)


def fitted(parts: Sequence[LinePart], width: int) -> str:
    """Join as much as fits into the width; at least the first part, which is cut if needed.

    The result is one line of at most so many columns, whatever names a script uses: a line that
    wraps could not be erased.
    """
    left = {part.name: [_plain(form) for form in part.forms] for part in parts}
    between = WIDE
    text = between.join(forms[0] for forms in left.values())
    for name in SHORTER:
        if _columns(text) <= width:
            return text
        if name is None:
            between = NARROW
        elif name in left and (name is not PartName.STANDING or len(left[name]) > 1):
            left[name].pop(0)
        text = between.join(forms[0] for forms in left.values() if forms)
    while text and _columns(text) > width:
        text = text[:-1]
    return text


def _plain(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)


def _columns(text: str) -> int:
    """Return the columns that a terminal needs: two for a Chinese character, none for an accent."""
    return sum(
        2 if east_asian_width(each) in "WF" else 0 if combining(each) else 1 for each in text
    )
