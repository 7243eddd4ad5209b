"""Sizes, ages and sentences about checkpoints. Pure."""

import time
from collections.abc import Sequence
from typing import Any

from elasticd.checkpoint.format.entry import LogEntry
from elasticd.checkpoint.format.manifest import Header, Manifest
from elasticd.checkpoint.retention.deletion import Removal
from elasticd.checkpoint.retention.sweep import SweepFolder, Swept
from elasticd.errors import CallError

__all__ = ["age", "age_limit", "named", "removal_lines", "shown", "size",
           "sweep_lines", "value", "when"]  # fmt: skip

_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
VALUE_LIMIT = 200


def size(nbytes: float) -> str:
    """Return a number of bytes with three significant digits."""
    for unit in _BYTES:
        if nbytes < 1000 or unit == _BYTES[-1]:
            return f"{nbytes:.3g} {unit}" if unit != "B" else f"{nbytes:.0f} B"
        nbytes /= 1024
    raise AssertionError


def age(seconds: float) -> str:
    """Return a duration in the unit that a person would use."""
    if seconds < 0:
        return "0 s"  # Another host's clock is ahead of ours.
    for unit, unit_s, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if seconds < most:
            return f"{seconds // unit_s:.0f} {unit}"
    return f"{seconds // 86400:.0f} d"


def age_limit(flag: str, text: str, *, least_s: float) -> float:
    """Read an age such as `90m`, `24h` or `7d`; return seconds. A plain number is seconds, too.

    Raises:
        CallError: the text is no age, or the age is below `least_s`.
    """
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(number) :].strip() or "s"
    try:
        seconds = float(number) * _UNITS_S[unit]
    except (ValueError, KeyError) as exc:
        raise CallError(f"{flag} {text} is no time: write 90m, 24h or 7d.") from exc
    if not seconds < float("inf"):  # NaN is not below either.
        raise CallError(f"{flag} {text} is no time that ever passes: write 90m, 24h or 7d.")
    if seconds < least_s:
        raise CallError(
            f"{flag} {text} is below {age(least_s)}: what is younger may still be in use, and two "
            "hosts' clocks differ."
        )
    return seconds


def named(entry: LogEntry) -> str:
    return f"checkpoint {entry.number}, step {entry.snapshot.step}"


def shown(text: str) -> str:
    """Return a text of a checkpoint for a terminal, with control sequences escaped."""
    return text if text.isprintable() else repr(text)


def value(found: Any) -> str:
    """Return a plain value of the state on one line."""
    text = repr(found) if isinstance(found, str) else str(found)
    return text if len(text) <= VALUE_LIMIT else f"{text[:VALUE_LIMIT]}..."


def when(at_unix_s: float, now_unix_s: float) -> str:
    """Return when a checkpoint was committed, by the clock of the process that committed it."""
    try:
        said = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at_unix_s))
    except (OverflowError, ValueError, OSError):
        return "committed at a time that is none"
    return f"committed {said}, {age(now_unix_s - at_unix_s)} ago"


def removal_lines(removal: Removal, *, is_dry_run: bool) -> list[str]:
    """Return a line for each removed checkpoint, or for each that a real run would remove."""
    lines = []
    verb = "would remove" if is_dry_run else "removed"
    before = "dry run, nothing was changed: " if is_dry_run else ""
    lines += [f"{before}{verb} {named(each)}, {size(each.nbytes)}" for each in removal.gone]
    lines += [
        f"{before}{verb} checkpoint {number} from the log; what it named is not known, `elasticd "
        "checkpoint sweep` deletes it"
        for number in removal.unreadable
    ]
    lines += [f"checkpoint {number} stays: it is being read" for number in removal.busy]
    lines += [
        f"the objects of checkpoint {number} are still being read: `elasticd checkpoint sweep` "
        "deletes them later"
        for number in removal.left
    ]
    return lines or ["There is nothing to remove."]


def sweep_lines(swept: Swept, *, is_dry_run: bool) -> list[str]:
    """Return a line for each deleted folder or object, or for each that a real run would delete."""
    verb = "would delete" if is_dry_run else "deleted"
    before = "dry run, nothing was changed: " if is_dry_run else ""
    lines = [f"{before}{verb} {_folder(each)}" for each in swept.folders]
    lines += [f"{before}{verb} {name}" for name in swept.strays]
    if swept.is_cut_off:
        lines.append("There may be more: call it again.")
    return lines or ["There is nothing to sweep."]


def header_lines(entry: LogEntry, manifest: Manifest, made: str) -> list[str]:
    """Return a description of a checkpoint."""
    header, snapshot = manifest.header, entry.snapshot
    return [
        f"{named(entry)}: {size(entry.nbytes)} in {_count(len(manifest.parts), 'part')}, {made}",
        f"job {shown(header.job)}, world size {header.world_size}, epoch {header.epoch}",
        f"run {snapshot.run}, generation {snapshot.generation}, folder {snapshot.folder}",
        f"written by elasticd {shown(header.version)}",
    ]


def header_plain(header: Header) -> dict[str, Any]:
    """Return the header for programs, without the fields that other parts of the output have."""
    return {
        "job": header.job,
        "uid": header.uid,
        "epoch": header.epoch,
        "world_size": header.world_size,
        "shares": header.shares,
        "taken_unix_s": header.taken_unix_s,
        "version": header.version,
    }


def entry_plain(entry: LogEntry) -> dict[str, Any]:
    """Return an entry for programs."""
    snapshot = entry.snapshot
    return {
        "number": entry.number,
        "step": snapshot.step,
        "generation": snapshot.generation,
        "run": snapshot.run,
        "nbytes": entry.nbytes,
        "at_unix_s": entry.at_unix_s,
        "folder": snapshot.folder,
    }


def more_line(some: Sequence[Any], every: Sequence[Any], what: str) -> list[str]:
    """Return a line with the number of items that are not shown; an empty list if all are shown."""
    rest = len(every) - len(some)
    return [f"and {_count(rest, f'more {what}')}: --all shows them"] if rest else []


def _folder(found: SweepFolder) -> str:
    return f"steps/{found.snapshot.folder.split('/')[1]}, {size(found.nbytes)}: {found.snapshot}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
