"""Uploads one holder's share from memory to the bucket: parts in parallel, then its fragment.

How many parts at a time is the size of the caller's pool: `KeeperSettings.parallel`, in
`elasticd.keeper.assembly`.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, wait
from contextlib import suppress
from dataclasses import dataclass

from elasticd.checkpoint.commit.fail_point import fail_point
from elasticd.checkpoint.format.checksum import block_sums
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot, fragment_name, part_name
from elasticd.checkpoint.format.manifest import Fragment, Header, Part
from elasticd.checkpoint.format.share_layout import Layout
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.errors import ElasticdError, EnvironmentProblem

__all__ = ["Abandoned", "UploadShare", "upload"]


class Abandoned(Exception):
    """Nobody wants the upload any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadShare:
    """One holder's share of a snapshot, described; the bytes themselves are elsewhere."""

    snapshot: Snapshot
    share: int
    shares: int
    holder: int
    """0 for the node whose share it is; 1 for another node, which has a copy."""
    layout: Layout
    header: Header | None
    """The header; only share 0 has one."""


def upload(
    bucket: Bucket,
    share: UploadShare,
    memory: memoryview,
    *,
    uid: str,
    writer: str,
    pool: Executor,
    is_wanted: Callable[[], bool] = lambda: True,
    wrote: Callable[[int], None] = lambda _: None,
    sums_of: Callable[[int], tuple[str, ...]] | None = None,
) -> Fragment:
    """Write all parts, then the fragment that names them, for the run `uid`.

    `writer` is a name of this process. `wrote` is called with the size of each part that is
    written, and `sums_of` returns the sums of its blocks; several threads call both. Without
    `sums_of` the sums are computed from the memory as it is now.

    If the storage has no room, the parts that were written are deleted: they would take the room of
    the next snapshot. No other process writes under their names, and no fragment names them yet.

    Raises: Abandoned: `is_wanted` returned False. Damaged: an earlier upload of the same writer
    left something else under one of its names.
    """
    created: list[str] = []

    def write(index: int) -> Part:
        if not is_wanted():
            raise Abandoned
        start, size = share.layout.parts[index]
        name = part_name(share.share, share.holder, writer, index)
        data = memory[start : start + size]
        sums = block_sums(data) if sums_of is None else sums_of(index)
        path = f"{share.snapshot.folder}/{name}"
        if bucket.create(path, data):
            created.append(path)
        elif block_sums(memoryview(bucket.read(path, size))) != sums:
            raise Damaged(f"{path} is there already, with other bytes in it.")
        wrote(size)
        return Part(name, size, sums)

    try:
        parts = _results([pool.submit(write, index) for index in range(len(share.layout.parts))])
    except EnvironmentProblem:
        with suppress(ElasticdError):
            bucket.delete(created)
        raise
    fail_point("upload.parts")
    fragment = Fragment(
        snapshot=share.snapshot,
        uid=uid,
        share=share.share,
        shares=share.shares,
        parts=parts,
        pieces=share.layout.pieces,
        header=share.header,
    )
    bucket.create(fragment_name(share.snapshot, share.share, share.holder), fragment.to_json())
    return fragment


def _results(tasks: Sequence[Future[Part]]) -> tuple[Part, ...]:
    """Wait for all; the first failure ends them all, and none runs when it is raised."""
    try:
        done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
        for task in done:
            task.result()
        return tuple(task.result() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        wait(tasks)
