"""Manifests and fragments: to JSON and back, put together, and what makes them whole."""

from dataclasses import replace

import pytest

from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.manifest import BLOCK_BYTES, Fragment, Manifest, Part, Piece, merged
from tests.unit.checkpoint.records import PARTS, PIECES, SNAPSHOT, fragments, header, manifest


def test_manifest_and_fragments_survive_the_way_to_bytes_and_back() -> None:
    """With and without a header."""
    assert Manifest.from_json(manifest().to_json()) == manifest()
    for fragment in fragments():
        assert Fragment.from_json(fragment.to_json()) == fragment


def test_manifest_counts_the_bytes_of_all_tensors() -> None:
    """Not those of the parts, between whose pieces there are gaps."""
    assert manifest().nbytes == 40


def test_fragments_of_all_shares_make_the_manifest() -> None:
    """Pieces follow their parts to other numbers."""
    assert merged(fragments()) == manifest()


def test_fragments_that_are_not_one_whole_are_damaged() -> None:
    """One missing, doubled, out of order, of another snapshot, or of another number of shares."""
    first, second = fragments()
    for wrong in (
        [],
        [first],
        [second, first],
        [first, first],
        [replace(first, header=None), second],
        [first, replace(second, snapshot=replace(SNAPSHOT, step=31))],
        [first, replace(second, shares=3)],
        [replace(first, header=header(shares=3)), second],
        [first, replace(second, pieces=())],
        [first, second, replace(second, share=2)],
    ):
        with pytest.raises(Damaged):
            merged(wrong)


@pytest.mark.parametrize(
    ("said", "pieces"),
    [
        ("not whole", PIECES[:3]),
        ("bytes of .* in common", (*PIECES, PIECES[3])),
        ("not whole", (*PIECES[:3], replace(PIECES[3], offsets=(1, 0)))),
        ("not whole", (*PIECES[:3], replace(PIECES[3], offsets=(3, 0)))),
        ("not whole", (*PIECES[:3], replace(PIECES[3], offsets=(2,), shape=(4,)))),
        ("does not exist", (*PIECES, Piece(3, (0,), (1,), 0, 0))),
        ("beyond the end", (*PIECES[:3], replace(PIECES[3], at=1))),
        ("bytes of .* in common", (*PIECES[:3], replace(PIECES[3], part=0, at=0))),
        ("bytes of .* in common", (PIECES[0], replace(PIECES[1], at=8), *PIECES[2:])),
    ],
)
def test_pieces_that_are_not_every_element_once_are_damaged(
    said: str, pieces: tuple[Piece, ...]
) -> None:
    """Nor may two elements be the same bytes: a small object would stand for a large state."""
    wrong = replace(manifest(), pieces=pieces)
    with pytest.raises(Damaged, match=said):
        Manifest.from_json(wrong.to_json())


def test_number_of_checksums_follows_from_the_size() -> None:
    """Else a block would go unverified."""
    for size, sums in ((BLOCK_BYTES, 1), (BLOCK_BYTES + 1, 2), (0, 0)):
        part = Part(PARTS[0].name, size, ("0" * 16,) * sums)
        found = Fragment(
            snapshot=SNAPSHOT, uid="u", share=1, shares=2, parts=(part,), pieces=(), header=None
        )
        assert Fragment.from_json(found.to_json()) == found
        for wrong in (sums + 1, sums - 1):
            if wrong >= 0:
                bad = replace(found, parts=(replace(part, sums=("0" * 16,) * wrong),))
                with pytest.raises(Damaged, match="checksums"):
                    Fragment.from_json(bad.to_json())
