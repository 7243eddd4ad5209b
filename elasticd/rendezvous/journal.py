"""A log of an agent's events and decisions, as text that replays.

It has one JSON line per decision, after an opening line with the state that it began from. Since
`decide` is deterministic, the same events at the same times give the same effects. If they do not,
either the code has changed or something impure is in it. A line costs as much as its event: the
states in between are not written, because they follow.
"""

import json
from collections.abc import Iterable
from typing import get_args

from elasticd.errors import NotSupported
from elasticd.records.codec import from_plain, to_plain
from elasticd.records.ids import Generation
from elasticd.records.job import JobSpec
from elasticd.rendezvous.decide import decide
from elasticd.rendezvous.effect import Effect
from elasticd.rendezvous.event import Event
from elasticd.rendezvous.state import JobState, Me, Past

__all__ = ["line", "opening", "replay"]

_FORMAT = "elasticd-journal-1"
_EVENTS: dict[str, type] = {kind.__name__: kind for kind in get_args(Event)}


def opening(state: JobState) -> str:
    """Return the first line of a journal: the state before any event."""
    assert state == JobState(me=state.me, spec=state.spec, past=state.past), "it told something"
    begin = {"format": _FORMAT, "me": to_plain(state.me), "spec": to_plain(state.spec)}
    return _dump({**begin, "past": to_plain(state.past)})


def line(now_s: float, event: Event, effects: tuple[Effect, ...]) -> str:
    """Return the line of one decision."""
    return _dump({"at": now_s, "event": _named(event), "effects": [_named(e) for e in effects]})


def replay(lines: Iterable[str]) -> str | None:
    """Make all decisions again; return the first difference in words, or None.

    Raises: NotSupported: the lines are no journal that this version can read.
    """
    state: JobState | None = None
    for number, text in enumerate(lines, start=1):
        row = _loaded(number, text)
        if state is None:
            if row.get("format") != _FORMAT:
                raise NotSupported(f"Line 1 is no opening of a journal of format {_FORMAT}.")
            me, spec = from_plain(Me, row["me"]), from_plain(JobSpec, row["spec"])
            state = JobState(me=me, spec=spec, past=_past(row.get("past", 0)))
            continue
        name, value = row["event"]
        if name not in _EVENTS:
            raise NotSupported(f"Line {number} of the journal has an unknown event {name}.")
        event: Event = from_plain(_EVENTS[name], value)
        state, effects = decide(state, event, now_s=row["at"])
        found = [_dump(_named(effect)) for effect in effects]
        recorded = [_dump(effect) for effect in row["effects"]]
        if found != recorded:
            return f"line {number}, {name}: recorded {recorded}, decided now {found}"
    return None


def _past(value: object) -> Past:
    """Read what was known before; journals of older versions have the generation alone."""
    return Past(generation=Generation(value)) if isinstance(value, int) else from_plain(Past, value)


def _named(value: Event | Effect) -> list[object]:
    return [type(value).__name__, to_plain(value)]


# JSON's own shape has no narrower type than a dict of anything.
def _loaded(number: int, text: str) -> dict:  # type: ignore[type-arg]
    try:
        row = json.loads(text)
    except ValueError as exc:
        raise NotSupported(f"Line {number} of the journal is not JSON: {exc}.") from exc
    if not isinstance(row, dict):
        raise NotSupported(f"Line {number} of the journal is not a JSON object.")
    return row


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
