"""What somebody wrote who wants to hurt a reader: rejected with limits, and no code is run."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from elasticd.checkpoint.format import manifest as manifest_module
from elasticd.checkpoint.format.entry import LogEntry
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.manifest import Fragment, Manifest
from tests.unit.checkpoint.records import changed, entry, fragments, manifest, sealed_text

PARSERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "entry": (lambda text: LogEntry.from_json(text, 3), entry().to_json()),
    "fragment": (Fragment.from_json, fragments()[0].to_json()),
    "manifest": (Manifest.from_json, manifest().to_json()),
}
NO_DOCUMENTS = (
    b"", b"{}", b"[]", b"null", b"\x80\x04\x95", b"\xff" * 100, b"PK\x03\x04" + b"\0" * 60,
    b'{"format":1}', b"[" * 100_000, b'{"a":' * 100_000, b'{"format":1,"x":' + b"[" * 100_000,
    b'{"format":1,"x":NaN}', b'{"format":1,"x":Infinity}', b'{"format":1,"x":' + b"9" * 5000,
    b'{"format":' + b"9" * 4000, b'{"format":[[[[1]]]]', b'{"format":"1"', b"\xef\xbb\xbf{}",
    b'{"format":1,"x":"\x00"', b"1" * 1000, b'"' + b"x" * 1000, b'[{"format":1}]',
)  # fmt: skip
ABSURD: tuple[Any, ...] = (
    None, True, -1, 1.0, 10**18, 10**300, 1e308, "", "1", "../x", [], [[]], [[[]]], [None] * 5,
    {}, {"a": 1}, [-1], ["x"],
)  # fmt: skip


@pytest.mark.parametrize("kind", PARSERS)
@pytest.mark.parametrize("text", NO_DOCUMENTS, ids=lambda text: repr(text[:20]))
def test_text_that_is_no_document_is_damaged(kind: str, text: bytes) -> None:
    """As it stands, and with a checksum that is right."""
    parse, _ = PARSERS[kind]
    for each in (text, sealed_text(text)):
        with pytest.raises(Damaged):
            parse(each)


@pytest.mark.parametrize("kind", PARSERS)
def test_any_value_in_any_place_is_refused_or_harmless(kind: str) -> None:
    """Every value of the document in turn becomes every absurd one: nothing but Damaged is raised,
    and what is accepted can be written and read again."""
    parse, text = PARSERS[kind]
    plain = json.loads(text)
    del plain["sum"]
    tried = 0
    for path in paths(plain):
        for absurd in ABSURD:
            other = json.loads(json.dumps(plain))
            place = other
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = absurd
            tried += 1
            found: Any = parsed(parse, changed(json.dumps({**other, "sum": ""}).encode()))
            if isinstance(found, Damaged):
                assert len(str(found)) < 500
            else:
                assert parse(found.to_json()) == found
    assert tried > 200


def parsed(parse: Callable[[bytes], object], text: bytes) -> object:
    try:
        return parse(text)
    except Damaged as exc:
        return exc


def paths(plain: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in it."""
    items: list[tuple[Any, Any]] = []
    if isinstance(plain, dict):
        items = list(plain.items())
    elif isinstance(plain, list):
        items = list(enumerate(plain))
    found = []
    for key, value in items:
        found += [(*above, key), *paths(value, (*above, key))]
    return found


@pytest.mark.parametrize(
    "name",
    [
        "../../../etc/passwd", "/etc/passwd", "..", "", "a.bin", "00000-0-0123abcd-00000.bin/..",
        "00000-0-0123abcd-00000.bin\n", "00000-0-0123ABCD-00000.bin", "00000-0-0123abcd-00000.json",
        "\u0660\u0660\u0660\u0660\u0660-0-0123abcd-00000.bin", "00000-0-0123abcd-00000.bin\x00",
        "..%2f00000-0-0123abcd-00000.bin", "manifest.json",
    ],
)  # fmt: skip
def test_name_of_a_part_leads_nowhere_else(name: str) -> None:
    """A reader opens what it names, in the folder of the checkpoint."""
    parts = json.loads(manifest().to_json())["parts"]
    parts[0][0] = name
    with pytest.raises(Damaged, match="no name of a part"):
        Manifest.from_json(changed(manifest().to_json(), parts=parts))


def test_absurd_sizes_are_refused_before_anything_is_made_of_them() -> None:
    """10^18 elements, 65 dimensions, a part beyond what a store takes, a type that is none."""
    text = manifest().to_json()
    plain = json.loads(text)
    for tensor in (
        ["w", "float32", [10**18]], ["w", "float32", [10**9, 10**9]], ["w", "float32", [1] * 65],
        ["w", "float32", [2**48, 2]], ["w", "object", [4, 2]], ["w", ["float32"], [4, 2]],
        [5, "float32", [4, 2]], ["w", "float32", 8], ["w", "float32"], "w",
    ):  # fmt: skip
        wrong = {**plain["header"], "tensors": [tensor, *plain["header"]["tensors"][1:]]}
        with pytest.raises(Damaged):
            Manifest.from_json(changed(text, header=wrong))
        with pytest.raises(Damaged):  # Before its pieces are there to show that it is wrong.
            Fragment.from_json(changed(fragments()[0].to_json(), header=wrong))
    for size in (10**18, 5 * 2**30 + 1, -1):
        with pytest.raises(Damaged):
            Manifest.from_json(changed(text, parts=[[plain["parts"][0][0], size, ""]]))


def test_small_object_does_not_unfold_into_a_large_state() -> None:
    """Many tensors that are all the same bytes are a bomb; each byte counts once."""
    text = manifest().to_json()
    plain = json.loads(text)
    count = 1000
    tensors = [[f"t{index}", "float32", [10]] for index in range(count)]
    pieces = [[index, [0], [10], 0, 0] for index in range(count)]
    with pytest.raises(Damaged, match="in common"):
        Manifest.from_json(
            changed(text, header={**plain["header"], "tensors": tensors}, pieces=pieces)
        )


def test_longer_lists_than_allowed_are_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tensors, parts and pieces, and the text as a whole."""
    text = manifest().to_json()
    for limit in ("TENSOR_LIMIT", "PART_LIMIT", "PIECE_LIMIT", "TEXT_LIMIT_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(manifest_module, limit, 1)
            with pytest.raises(Damaged):
                Manifest.from_json(text)
    Manifest.from_json(text)
