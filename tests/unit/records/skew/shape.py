"""The shape of every record: its fields, their types, and which of them have to be there.

`python -m tests.unit.records.skew.shape` prints that of this tree. When a release is made, its
output becomes shape-before.json: then the tests beside this file read with that release's eyes.
"""

import importlib
import json
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass, make_dataclass
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

import elasticd.records

__all__ = ["Shape", "kinds", "shape_of", "types_of"]

Shape = dict[str, Any]
"""`records`: by name the fields, each with its type and whether it has to be there. `words`: the
closed lists of words, by name."""

_PLAIN = {int: "int", str: "str", float: "float", bool: "bool", object: "object"}


def kinds() -> dict[str, Any]:
    """Return every record and every part of one, by name."""
    return {kind.__name__: kind for kind in _declared() if is_dataclass(kind)}


def shape_of(found: Mapping[str, Any]) -> Shape:
    """Write down these records."""
    records: dict[str, Any] = {}
    words: dict[str, Any] = {}
    for name, kind in found.items():
        hints = get_type_hints(kind)
        records[name] = {
            each.name: [_described(hints[each.name], words), _is_required(each)]
            for each in fields(kind)
            if each.init
        }
    return {"records": records, "words": words}


def types_of(shape: Shape) -> dict[str, Any]:
    """Make classes of that shape, which a release of that shape would read as it reads its own."""
    words = {name: _word_list(name, each) for name, each in shape["words"].items()}
    made: dict[str, Any] = {}

    def record(name: str) -> Any:
        if name not in made:
            made[name] = make_dataclass(
                name,
                [
                    (each, hint(kind), field() if is_required else _empty(each))
                    for each, (kind, is_required) in shape["records"][name].items()
                ],
                frozen=True,
                kw_only=True,
            )
        return made[name]

    def hint(kind: Any) -> Any:
        if isinstance(kind, str):
            plain = {text: each for each, text in _PLAIN.items()}
            return plain.get(kind) or words.get(kind) or record(kind)
        head, *rest = kind
        inner = [hint(each) for each in rest]
        if head == "optional":
            return inner[0] | None
        if head == "list":
            return types.GenericAlias(tuple, (inner[0], ...))
        return types.GenericAlias(Mapping if head == "map" else tuple, tuple(inner))

    return {name: record(name) for name in shape["records"]}


def _declared() -> Iterator[type]:
    for module in pkgutil.walk_packages(elasticd.records.__path__, "elasticd.records."):
        for found in vars(importlib.import_module(module.name)).values():
            if isinstance(found, type) and found.__module__ == module.name:
                yield found


def _described(hint: Any, words: dict[str, Any]) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(hint, typing.NewType):
        return _described(hint.__supertype__, words)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin in (types.UnionType, typing.Union):
        (inner,) = (each for each in args if each is not type(None))
        return ["optional", _described(inner, words)]
    if origin is tuple and args[-1] is Ellipsis:
        return ["list", _described(args[0], words)]
    if origin is tuple:
        return ["tuple", *(_described(each, words) for each in args)]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return ["map", *(_described(each, words) for each in args)]
    if issubclass(hint, Enum):
        words[hint.__name__] = [each.value for each in hint]
        return hint.__name__
    assert is_dataclass(hint), hint
    return str(getattr(hint, "__name__", ""))


def _word_list(name: str, words: Sequence[str]) -> Any:
    return Enum(name, [(word.upper(), word) for word in words])


def _empty(name: str) -> Any:
    """Whatever the default was: what is compared is what was written."""
    return field(default_factory=dict) if name == "unknown" else field(default=None)


def _is_required(each: Any) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


if __name__ == "__main__":
    parts = [
        f'"{part}": {{\n' + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in sorted(found.items()))
        for part, found in sorted(shape_of(kinds()).items())
    ]
    print("{" + "\n},\n".join(parts) + "\n}}")
