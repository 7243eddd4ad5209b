"""Records to JSON bytes and back.

A record carries its kind and a schema number. Unknown fields of a newer minor schema are kept in
`unknown` and written back; a newer major schema is refused. The form follows from the dataclasses
themselves, so that no field is spelled twice. Pickle is not an option, because a record may come
from anybody who can write to etcd.
"""

import json
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from elasticd.errors import NotSupported
from elasticd.records.compression import compressed, decompressed

__all__ = ["SCHEMA", "decode", "encode", "from_plain", "to_plain"]

SCHEMA = (1, 0)
R = TypeVar("R")

_PLAIN = {int, str, float, bool, type(None)}
"""The types that JSON has."""


def encode(record: object) -> bytes:
    """Return a record's bytes, with its kind and its schema.

    Raises: NotSupported: the record is too large for etcd.
    """
    plain = to_plain(record)
    assert isinstance(plain, dict)
    plain.update(plain.pop("unknown", {}))
    plain["kind"] = type(record).__name__
    plain["schema"] = f"{SCHEMA[0]}.{SCHEMA[1]}"
    text = json.dumps(plain, separators=(",", ":"), sort_keys=True)
    return compressed(text.encode(), type(record).__name__)


def decode(kind: type[R], value: bytes) -> R:
    """Read a record of this kind.

    Raises:
        NotSupported: not JSON, another kind, a field that does not fit, too large, or a newer
            major schema.
    """
    text = decompressed(value, kind.__name__)
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise NotSupported(f"The {kind.__name__} record in etcd is not JSON: {exc}.") from exc
    if not isinstance(plain, dict):
        raise NotSupported(f"The {kind.__name__} record in etcd is not a JSON object.")
    schema = str(plain.pop("schema", "0"))
    if schema.split(".", 1)[0] != str(SCHEMA[0]):
        raise NotSupported(
            f"The {kind.__name__} record in etcd has schema {schema}, this elasticd knows "
            f"{SCHEMA[0]}.x: upgrade elasticd on this machine, or use another --cluster."
        )
    found = plain.pop("kind", None)
    if found != kind.__name__:
        raise NotSupported(f"A record in etcd is a {found}, not a {kind.__name__}.")
    known = {f.name for f in fields(kind) if f.init}  # type: ignore[arg-type]
    if "unknown" in known:
        plain["unknown"] = {name: plain.pop(name) for name in list(plain) if name not in known}
    try:
        record: R = from_plain(kind, plain)
    except (KeyError, TypeError, ValueError) as exc:
        raise NotSupported(f"The {kind.__name__} record in etcd does not fit: {exc}.") from exc
    return record


def to_plain(value: object) -> object:
    """Turn dataclasses, enums, tuples and mappings into JSON's types."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:  # A layout has a thousand of them.
        return [to_plain(item) for item in value]  # type: ignore[attr-defined]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: to_plain(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: Any, value: Any) -> Any:
    """Build a value of `kind` from JSON's types; fields that are missing take their default.

    Raises: TypeError, ValueError, KeyError: the value does not fit the kind.
    """
    return _reader(kind)(value)


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return what builds values of this kind; it is cached, because analysing the kind costs more
    than building a value.
    """
    origin = get_origin(kind)
    if isinstance(kind, typing.NewType):
        return _reader(kind.__supertype__)
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass_reader(kind)
    if origin in (types.UnionType, typing.Union):
        return _optional_reader(get_args(kind))
    if origin is tuple:
        return _tuple_reader(get_args(kind))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_reader(*get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum_reader(kind)
    if kind is float:
        return _read_float
    if kind in (int, str, bool):
        return lambda value: value if type(value) is kind else _checked((kind,), value)
    if kind is object:
        return lambda value: value
    raise TypeError(f"no rule to read a {kind}")


def _dataclass_reader(kind: type) -> Callable[[Any], Any]:
    hints = _hints(kind)

    readers: dict[str, Callable[[Any], Any]] = {}
    """Those that were needed so far: a kind may have a field of its own kind."""

    def read(value: Any) -> Any:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise TypeError(f"{kind} wants an object, not {value!r}")
        found = {}
        for name, item in value.items():
            reader = readers.get(name)
            if reader is None:
                if name not in hints:
                    continue
                reader = readers[name] = _reader(hints[name])
            found[name] = reader(item)
        return kind(**found)

    return read


def _optional_reader(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    may_be_none = type(None) in kinds
    (inner,) = (_reader(kind) for kind in kinds if kind is not type(None))
    return lambda value: None if value is None and may_be_none else inner(value)


def _tuple_reader(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    is_open = kinds[-1] is Ellipsis
    readers = [_reader(kind) for kind in kinds if kind is not Ellipsis]

    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise TypeError(f"a list is wanted, not {value!r}")
        if is_open:
            return tuple(map(readers[0], value))
        return tuple(reader(item) for reader, item in zip(readers, value, strict=True))

    return read


def _mapping_reader(key_kind: Any, item_kind: Any) -> Callable[[Any], Any]:
    key, item = _reader(key_kind), _reader(item_kind)

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError(f"an object is wanted, not {value!r}")
        return {key(k): item(v) for k, v in value.items()}

    return read


def _enum_reader(kind: type[Enum]) -> Callable[[Any], Any]:
    """Return a reader for an enum; an enum that has OTHER reads an unknown word as OTHER."""
    words = {member.value: member for member in kind}
    other = kind.__members__.get("OTHER")

    def read(value: Any) -> Any:
        if type(value) is str and (found := words.get(value, other)) is not None:
            return found
        raise ValueError(f"{value!r} is no {kind.__name__}")

    return read


def _read_float(value: Any) -> float:
    try:
        return float(_checked((int, float), value))
    except OverflowError as exc:  # JSON has whole numbers beyond all floats.
        raise ValueError(f"{str(value)[:20]}... is no number of this size") from exc


def _checked(kinds: tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(f"{' or '.join(k.__name__ for k in kinds)} is wanted, not {value!r}")
    return value


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if f.init)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
