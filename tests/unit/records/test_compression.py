"""What a record weighs in etcd, and what does not fit."""

import json
import random
import zlib

import pytest

from elasticd.errors import NotSupported
from elasticd.records import compression
from elasticd.records.codec import decode, encode
from elasticd.records.compression import RECORD_LIMIT_BYTES
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec
from elasticd.records.world import World
from tests.fixtures.large_world import large_world

ETCD_REQUEST_LIMIT_BYTES = 1536 * 1024


def test_world_of_ten_thousand_nodes_fits_and_is_read_again() -> None:
    """With eight workers each, and room for the status and a member in the same request."""
    world = large_world(10_000, 8)
    value = encode(world)
    assert len(value) < RECORD_LIMIT_BYTES < ETCD_REQUEST_LIMIT_BYTES
    assert decode(World, value) == world


def test_what_older_versions_can_read_stays_plain() -> None:
    """They refuse more than a megabyte in any case; and people read it with etcdctl."""
    value = encode(large_world(2_000, 8))
    assert json.loads(value)["kind"] == "World"


def test_record_that_does_not_fit_is_refused_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever read it would refuse it."""
    noise = "".join(random.Random(1).choices("0123456789abcdef", k=3 * RECORD_LIMIT_BYTES))
    spec = JobSpec(
        name=JobName("j"), uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py", args=(noise,)
    )
    with pytest.raises(NotSupported, match=r"JobSpec record of .* is over the limit"):
        encode(spec)
    monkeypatch.setattr(compression, "PLAIN_LIMIT_BYTES", RECORD_LIMIT_BYTES)
    with pytest.raises(NotSupported, match="over the limit"):
        encode(large_world(5_000, 8))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"x\x9cno zlib at all", "damaged"),
        (zlib.compress(b"{}" * 1000)[:-9], "cut short"),
        (zlib.compress(b" " * 5_000_000), "over the limit"),
        (b"{" * (RECORD_LIMIT_BYTES + 1), "over the limit"),
    ],
)
def test_what_no_version_wrote_is_refused_in_a_sentence(
    value: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes of somebody's hand in etcd must not fill the memory of all agents."""
    monkeypatch.setattr(compression, "PLAIN_LIMIT_BYTES", 4_000_000)
    with pytest.raises(NotSupported, match=message):
        decode(World, value)
