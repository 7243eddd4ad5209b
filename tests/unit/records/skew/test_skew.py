"""Agents of this version and of the one before serve the same jobs, and read each other's records.

What was written before is made of the shape that its records had, kept in shape-before.json; how
records are read has not changed since, so that shape is what the older version sees, too.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.errors import NotSupported
from elasticd.records.codec import decode, encode, from_plain, to_plain
from tests.unit.records.skew.shape import Shape, kinds, shape_of, types_of

OURS = kinds()
BEFORE: Shape = json.loads((Path(__file__).parent / "shape-before.json").read_text())
THEIRS = types_of(BEFORE)
KEPT = sorted(OURS.keys() & THEIRS.keys() - {"TargetMetric"})
"""But one that has a field `kind` and is part of a Policy, with which it is read here."""
VARIANTS = 24
"""As many as the longest list of words has, so that each word is written once."""
VALUES = {"int": 3, "float": 1.5, "str": "a", "bool": True, "object": 1}


def plain(shape: Shape, name: str, variant: int, *, is_full: bool) -> dict[str, Any]:
    """Make what JSON has of a record of that shape: all fields, or those that have to be there."""

    def value(kind: Any) -> Any:
        if isinstance(kind, str):
            if kind in VALUES:
                return VALUES[kind]
            if kind in shape["words"]:
                words = shape["words"][kind]
                return words[variant % len(words)]
            return plain(shape, kind, variant, is_full=is_full)
        head, *rest = kind
        if head == "map":
            return {"k": value(rest[1])}
        if head == "tuple":
            return [value(each) for each in rest]
        return value(rest[0]) if head == "optional" else [value(rest[0])]

    return {
        field: value(kind)
        for field, (kind, is_required) in shape["records"][name].items()
        if (is_required or is_full) and field != "unknown"
    }


def examples(shape: Shape, name: str) -> Iterator[dict[str, Any]]:
    yield plain(shape, name, 0, is_full=False)
    for variant in range(VARIANTS):
        yield plain(shape, name, variant, is_full=True)


def holds(larger: Any, smaller: Any) -> bool:
    """True if all that stands in the one stands in the other with the same value."""
    if isinstance(smaller, dict):
        return isinstance(larger, dict) and all(
            name in larger and holds(larger[name], value) for name, value in smaller.items()
        )
    if isinstance(smaller, list):
        return len(larger) == len(smaller) and all(map(holds, larger, smaller))
    return bool(larger == smaller)


def known_then(kind: Any, seen: Any) -> Any:
    """Return what the version before knows of a value; in it, too, a record may have new fields."""
    if seen is None:
        return None
    if isinstance(kind, str):
        if kind not in BEFORE["records"]:
            return seen
        known = BEFORE["records"][kind].items()
        return {field: known_then(each, seen[field]) for field, (each, _) in known if field in seen}
    head, *rest = kind
    if head == "map":
        return {key: known_then(rest[1], each) for key, each in seen.items()}
    if head == "tuple":
        return [known_then(each, one) for each, one in zip(rest, seen, strict=True)]
    if head == "optional":
        return known_then(rest[0], seen)
    return [known_then(rest[0], each) for each in seen]


@pytest.mark.parametrize("name", KEPT)
def test_what_the_version_before_wrote_is_read_whole(name: str) -> None:
    """With all its fields, and with no more than those that it had to write."""
    for text in examples(BEFORE, name):
        assert holds(to_plain(decode(OURS[name], written(name, text))), text)


@pytest.mark.parametrize("name", KEPT)
def test_the_version_before_reads_what_is_written_now(name: str) -> None:
    """What it knows of it; a new field of the record itself it keeps and writes back."""
    for text in examples(shape_of(OURS), name):
        read = decode(THEIRS[name], encode(from_plain(OURS[name], text)))
        assert holds(to_plain(read), known_then(name, text))


def written(name: str, text: dict[str, Any]) -> bytes:
    return json.dumps(text | {"kind": name, "schema": "1.0"}).encode()


def test_every_kind_of_the_version_before_is_still_there() -> None:
    """Or its records lie in etcd, and nobody reads them."""
    assert THEIRS.keys() <= OURS.keys()


def test_a_field_that_has_to_be_there_and_a_new_word_would_be_found() -> None:
    """Else the tests above say nothing."""
    grown = json.loads(json.dumps(BEFORE))
    grown["records"]["Drain"]["depth"] = ["int", True]
    with pytest.raises(NotSupported, match="depth"):
        decode(types_of(grown)["Drain"], encode(OURS["Drain"](why="w")))
    grown["words"]["EntryKind"].append("container")
    text = plain(grown, "JobSpec", 0, is_full=True) | {"entry_kind": "container"}
    with pytest.raises(NotSupported, match="container"):
        decode(OURS["JobSpec"], written("JobSpec", text))
