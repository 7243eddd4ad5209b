"""The parts of the progress line, and the selection that fits into a terminal. Pure.

Each part has a long form for wide terminals, and shorter forms. If a line is too long, one form
after the other is replaced by a shorter one, in a fixed order, until the line fits. So 80 columns
show all that a person looks for first, and 60 columns show enough to decide whether to wait. The
rejected alternative is to cut the line at the right: that lost the goodput and the age of the
checkpoint whenever a rate and a loss were known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from unicodedata import combining, east_asian_width

__all__ = ["LinePart", "PartName", "fitted", "whole"]

WIDE, NARROW = " | ", ", "
"""The separator of two parts, and a narrower one for a line that is too long."""


class PartName(StrEnum):
    """The subject of a part."""

    STANDING = "standing"
    """The progress of the training: the first part, which is never left out."""
    PAUSE = "pause"
    EPOCH = "epoch"
    RATE = "rate"
    END = "end"
    SCALAR = "scalar"
    """The first of the numbers that the script reports, usually the loss."""
    MORE = "more"
    """The other numbers that the script reports."""
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
"""The order in which parts get shorter, the least important first.

After its last form a part is left out, except for the first part. None stands for the narrow
separator.
"""


def whole(parts: Sequence[LinePart]) -> str:
    """Return all parts in their longest form, as a sentence for a log."""
    return NARROW.join(part.text for part in parts)


def fitted(parts: Sequence[LinePart], width: int) -> str:
    """Join the parts that fit into the width; at least the first part, which is cut if needed.

    The result is one line of at most `width` columns, whatever names a script uses: a line that
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
    """Return the columns that a text needs: two for a Chinese character, none for an accent."""
    return sum(
        2 if east_asian_width(each) in "WF" else 0 if combining(each) else 1 for each in text
    )
