"""A mark of damage: it says where to look, and decides nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.committer import read_manifest
from elasticd.checkpoint.commit.damage_mark import DamageMark, check_marked_block, mark_damage
from elasticd.checkpoint.format.json_read import Damaged, DamagedBlock
from elasticd.checkpoint.format.layout import damage_name
from elasticd.checkpoint.format.manifest import Manifest
from elasticd.checkpoint.storage.bucket import Bucket
from tests.unit.checkpoint.stock_case import Maker


class Site:
    """A checkpoint in a folder, and its first part."""

    def __init__(self, folder: Path) -> None:
        maker = Maker.of(folder)
        self.bucket: Bucket = maker.bucket
        self.manifest: Manifest = read_manifest(maker.bucket, maker.save(10))
        self.snapshot = self.manifest.header.snapshot
        self.block = DamagedBlock(self.manifest.parts[0].name, 0)
        self.part = folder / self.snapshot.folder / self.block.part
        self.mark = folder / damage_name(self.snapshot)

    def spoil(self) -> None:
        data = bytearray(self.part.read_bytes())
        data[len(data) // 2] ^= 1
        self.part.write_bytes(data)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_damage_is_seen_where_it_is_marked_and_nowhere_else(site: Site) -> None:
    """Without a mark no part is read: a restore would read all of it twice."""
    site.spoil()
    check_marked_block(site.bucket, site.manifest)
    mark_damage(site.bucket, site.snapshot, site.block)
    with pytest.raises(Damaged, match="checksum of its block 0 differs"):
        check_marked_block(site.bucket, site.manifest)
    site.part.unlink()
    with pytest.raises(Damaged, match="is gone"):
        check_marked_block(site.bucket, site.manifest)


def test_mark_on_a_good_block_decides_nothing(site: Site) -> None:
    """The node that found it has a bad cable, or the part was put back."""
    mark_damage(site.bucket, site.snapshot, site.block)
    check_marked_block(site.bucket, site.manifest)


def test_later_mark_takes_the_place_of_an_earlier_one(site: Site) -> None:
    other = DamagedBlock(site.manifest.parts[-1].name, 0)
    assert other != site.block
    site.spoil()
    mark_damage(site.bucket, site.snapshot, other)
    check_marked_block(site.bucket, site.manifest)
    mark_damage(site.bucket, site.snapshot, site.block)
    with pytest.raises(Damaged):
        check_marked_block(site.bucket, site.manifest)


def test_mark_that_makes_no_sense_says_nothing(site: Site) -> None:
    """It is damaged itself, another snapshot's, or of no block that there is."""
    site.spoil()
    mark_damage(site.bucket, site.snapshot, site.block)
    good = site.mark.read_bytes()
    later = DamageMark(snapshot=replace(site.snapshot, step=11), block=site.block)
    for text in (b"", good[:-1], good.replace(b'"block":0', b'"block":1'), later.to_json()):
        site.mark.write_bytes(text)
        check_marked_block(site.bucket, site.manifest)
    with pytest.raises(Damaged, match="another snapshot"):
        DamageMark.from_json(later.to_json(), site.snapshot)
    for block in (DamagedBlock(site.block.part, 1 << 30), DamagedBlock("../manifest.json", 0)):
        mark_damage(site.bucket, site.snapshot, block)
        check_marked_block(site.bucket, site.manifest)
