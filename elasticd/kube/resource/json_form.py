"""Converts dataclasses to the JSON of the Kubernetes API and back.

The API has the name `shutdownSeconds` for the field `shutdown_s`, and leaves out fields that are
not set. Fields of a newer version are kept in `unknown` and written back.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from elasticd.records.codec import from_plain

__all__ = ["api_name", "from_json", "to_json"]


def api_name(name: str) -> str:
    """Return the API's name of a field."""
    words = (name.removesuffix("_s") + "_seconds" if name.endswith("_s") else name).split("_")
    return words[0] + "".join(word.capitalize() for word in words[1:])


def to_json(value: Any) -> Any:
    """Return the API's form of a value; fields that are None or empty are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        found = {
            api_name(f.name): to_json(item)
            for f in fields(value)
            if f.name != "unknown" and not _is_unset(item := getattr(value, f.name))
        }
        return {**getattr(value, "unknown", {}), **found}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


def from_json(kind: Any, value: Any) -> Any:
    """Build a value of `kind` from the API's JSON.

    Raises: TypeError, ValueError, KeyError: the JSON does not fit.
    """
    inner = _without_none(kind)
    if inner is not kind and value is None:
        return None
    origin = get_origin(inner)
    if isinstance(inner, type) and is_dataclass(inner):
        return _dataclass(inner, value)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise TypeError(f"a list is wanted, not {value!r}")
        return tuple(from_json(get_args(inner)[0], item) for item in value)
    return from_plain(inner, value)


# --- private ----------------------------------------------------------------------------------


def _dataclass(kind: type, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError(f"an object is wanted, not {value!r}")
    names, hints = _names(kind), _hints(kind)
    given: dict[str, Any] = {
        names[key]: from_json(hints[names[key]], item)
        for key, item in value.items()
        if key in names and not (item is None and _has_default(kind, names[key]))
    }
    if "unknown" in hints:
        given["unknown"] = {key: item for key, item in value.items() if key not in names}
    return kind(**given)


def _is_unset(value: Any) -> bool:
    return value is None or (isinstance(value, str | tuple | Mapping) and not value)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (types.UnionType, typing.Union):
        (inner,) = (each for each in get_args(kind) if each is not type(None))
        return inner
    return kind


@cache
def _has_default(kind: Any, name: str) -> bool:
    """Return whether the API writes null because the field is not set."""
    (found,) = (f for f in fields(kind) if f.name == name)
    return found.default is not MISSING or found.default_factory is not MISSING


@cache
def _names(kind: Any) -> dict[str, str]:
    return {api_name(f.name): f.name for f in fields(kind) if f.name != "unknown"}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
