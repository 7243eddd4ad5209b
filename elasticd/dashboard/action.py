"""The changes that a page may ask for, which are those of `elasticd top`. Pure.

This module only reads the request; `cli/views/actions.py` carries out the action.
"""

import json
from dataclasses import dataclass, fields

from elasticd.errors import CallError

__all__ = [
    "ActionRequest",
    "DrainRequest",
    "ScaleRequest",
    "StopRequest",
    "UndrainRequest",
    "read_action",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRequest:
    """Set the wanted number of nodes of a job."""

    job: str
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequest:
    """End a job; its workers get SIGTERM, and save their state if they can."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequest:
    """Take a node out of service."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndrainRequest:
    """Bring a drained node back into service."""

    node: str


ActionRequest = ScaleRequest | StopRequest | DrainRequest | UndrainRequest
_KINDS: dict[str, type[ScaleRequest | StopRequest | DrainRequest | UndrainRequest]] = {
    "scale": ScaleRequest,
    "stop": StopRequest,
    "drain": DrainRequest,
    "undrain": UndrainRequest,
}


def read_action(body: bytes) -> ActionRequest:
    """Read an action: a JSON object with its name as `action`, and exactly its own values.

    Raises: CallError: the action is unknown, or a value is missing, superfluous, or of another
        type.
    """
    try:
        given = json.loads(body)
    except ValueError as exc:  # This is also raised for invalid UTF-8.
        raise CallError(f"The action is no JSON ({exc}).") from exc
    except RecursionError as exc:
        raise CallError("The action is no JSON that anybody would write.") from exc
    if not isinstance(given, dict):
        raise CallError("An action is an object, as {'action': 'drain', 'node': 'gpu-1'}.")
    name = given.pop("action", None)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise CallError(f"There is no action {name!r}: choose one of {', '.join(_KINDS)}.")
    wanted = {field.name: field.type for field in fields(kind)}
    if given.keys() != wanted.keys():
        raise CallError(
            f"{name} has the values {', '.join(wanted)}; given were {', '.join(given) or 'none'}."
        )
    for key, value in given.items():
        if type(value) is not wanted[key]:  # True is not accepted as a number.
            raise CallError(f"{key} {value!r} is not usable for {name}.")
    return kind(**given)
