"""One entry of the log of commits: the only thing that makes a checkpoint count. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

from elasticd.checkpoint.format import json_read
from elasticd.checkpoint.format.json_read import Damaged, value_text, with_checksum
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.number_ranges import NumberRanges

__all__ = [
    "ENTRY_LIMIT_BYTES",
    "FORMER_LIMIT",
    "KEPT_LIMIT",
    "ROWS_LIMIT",
    "LogEntry",
    "LogEntryKind",
]

FORMAT = 1
RANGES_FORMAT = 2
"""The format number of an entry in which `kept` has ranges."""
PLAIN_LIMIT = 100
"""Up to this many numbers are written as a plain list, in the format that every elasticd and any
script reads."""
ENTRY_LIMIT_BYTES = 4 << 20
KEPT_LIMIT = 100_000_000
"""The most kept checkpoints: one every five seconds for fifteen years."""
ROWS_LIMIT = 100_000
"""The most numbers and ranges in `kept`: each generation adds one, and each checkpoint that is
given up."""
FORMER_LIMIT = 1000
"""How many runs of a job on one URL are remembered as over."""


class LogEntryKind(StrEnum):
    OPENED = "opened"
    """A generation began at `snapshot.step`; older ones may not commit a later step any more."""
    COMMITTED = "committed"
    """The checkpoint is whole and durable."""
    REMOVED = "removed"
    """`kept` is what remains; the entry is written before anything is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    number: int
    kind: LogEntryKind
    snapshot: Snapshot
    uid: str
    """The uid of the job that wrote it."""
    job: str
    kept: Sequence[int]
    """The numbers of the entries whose checkpoints remain, ascending, this one included."""
    manifest_sum: str = ""
    """The XXH3-128 of the manifest's bytes, in hexadecimal."""
    nbytes: int = 0
    at_unix_s: float = 0.0
    """The time of writing, for people."""
    opened: int = 0
    """The number of the newest entry up to this one that opened a generation; it saves reading
    back."""
    committed: int = 0
    """The number of the newest checkpoint up to this entry, kept or not; 0 if there was none."""
    origin: int | None = None
    """In an entry that opens a generation: the number of the checkpoint that it went on from; 0 if
    it began anew, None if whoever wrote the entry did not say."""
    former: tuple[str, ...] = ()
    """In an entry that opens a generation: the uids of the runs before, which may not write any
    more."""

    def __post_init__(self) -> None:
        """Store `kept`, which may be many numbers, in little memory."""
        object.__setattr__(self, "kept", NumberRanges(self.kept))

    def to_json(self) -> bytes:
        is_plain = len(self.kept) <= PLAIN_LIMIT
        return with_checksum(
            {
                "format": FORMAT if is_plain else RANGES_FORMAT,
                "number": self.number,
                "kind": self.kind.value,
                **asdict(self.snapshot),
                "uid": self.uid,
                "job": self.job,
                "kept": list(self.kept) if is_plain else NumberRanges(self.kept).rows(),
                "manifest_sum": self.manifest_sum,
                "nbytes": self.nbytes,
                "at_unix_s": self.at_unix_s,
                "opened": self.opened,
                "committed": self.committed,
                "former": self.former,
                **({} if self.origin is None else {"origin": self.origin}),
            }
        )

    @classmethod
    def from_json(cls, data: bytes, number: int) -> Self:
        """Read the entry that stands under this number.

        Raises: Damaged: the text is no entry.
        """
        fields = json_read.document(data, ENTRY_LIMIT_BYTES, FORMAT, RANGES_FORMAT)
        if type(fields.get("number")) is not int or fields["number"] != number:
            calls = value_text(fields.get("number"))
            raise Damaged(f"The entry {number} of the log calls itself {calls}.")
        if fields.get("kind") not in list(LogEntryKind):
            raise Damaged(f"The entry {number} of the log is of no known kind.")
        kept = fields.get("kept")
        if not isinstance(kept, list) or len(kept) > ROWS_LIMIT:
            raise Damaged(f"The entry {number} of the log has no list of what is kept.")
        if fields["format"] == FORMAT and any(isinstance(each, list) for each in kept):
            raise Damaged(f"The entry {number} of the log has ranges, which its format has not.")
        former = fields.get("former")
        if not isinstance(former, list) or len(former) > FORMER_LIMIT:
            raise Damaged(f"The entry {number} of the log has no list of former runs.")
        if not all(isinstance(each, str) for each in former):
            raise Damaged(f"The entry {number} of the log names a former run that is no text.")
        return cls(
            number=number,
            kind=LogEntryKind(fields["kind"]),
            snapshot=Snapshot.from_plain(fields),
            uid=json_read.text(fields, "uid"),
            job=json_read.text(fields, "job"),
            kept=NumberRanges.from_rows("kept", kept, number, KEPT_LIMIT),
            manifest_sum=json_read.text(fields, "manifest_sum"),
            nbytes=json_read.integer(fields, "nbytes", 1 << 62),
            at_unix_s=json_read.number(fields, "at_unix_s"),
            opened=json_read.integer(fields, "opened", number),
            committed=json_read.integer(fields, "committed", number),
            former=tuple(former),
            origin=json_read.integer(fields, "origin", number) if "origin" in fields else None,
        )
