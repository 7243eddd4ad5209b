"""`Writer`: torch.distributed.checkpoint saves in elasticd's format.

DCP decides which rank writes which box, and gathers the answers. Each rank writes its boxes as
parts and answers with what they are. The coordinator makes the manifest of it and appends the entry
to the log, before which nothing counts. No fragments are written: only this save could finish the
checkpoint, since the values of the other ranks are in DCP's answers.
"""

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from elasticd import __version__
from elasticd.checkpoint.commit.committer import CommitOutcome, Committer
from elasticd.checkpoint.commit.fetch import read_block
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import LAST_STEP, Snapshot
from elasticd.checkpoint.format.manifest import BLOCK_BYTES, Header, Manifest
from elasticd.checkpoint.storage.bucket import Bucket, ObjectMissing, ReadableBucket
from elasticd.checkpoint.storage.location import checked_url, open_bucket
from elasticd.dcp.manifest_merge import Value, Written, merge
from elasticd.dcp.part_write import IN_FLIGHT, TensorSource, described, write_parts
from elasticd.errors import CallError, Fenced, InvariantBroken, Refused
from elasticd.script.save_reminder import needs_none
from elasticd.tensors import tree

__all__ = ["Writer"]

_READ_BACK: set[tuple[int, str]] = set()
"""Processes and URLs: what was written there could be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """The message of the coordinator to each rank, in the rank's plan."""

    snapshot: Snapshot
    share: int


class Writer(StorageWriter):
    """Saves one checkpoint, of step `step`, below a URL; for `save` and `async_save`.

    All checkpoints of one process are one run in the log: their steps go up, or begin again from
    where it went back to. `job` owns the checkpoints, by default the last component of the URL; the
    URL takes no other job's. A writer is plain data until it is used, since `async_save` may send
    it to another process.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        step: int,
        storage_options: Mapping[str, Any] | None = None,
        job: str = "",
        uid: str = "",
    ) -> None:
        """`storage_options` go to fsspec; a value `env:NAME` or `file:PATH` is looked up there.

        Raises: CallError: `step` is no whole number from 0 to 10**15 - 1.
        """
        if type(step) is not int or step < 0:
            raise CallError(f"step is {step!r}: give a whole number, 0 or more.")
        if step > LAST_STEP:
            raise CallError("step is 10**15 or more: give the number of the step, not a time.")
        self._options = dict(storage_options or {})
        self._step, self._job, self._uid = step, job, uid
        self.reset(url)
        needs_none()

    @property
    def checkpoint_id(self) -> str:
        return self._url

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_order": None, "_committer": None}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Forget what was begun; `checkpoint_id` is another URL."""
        if checkpoint_id is not None:
            self._url = checked_url(os.fspath(checkpoint_id), flag="URL")
        self._order: tuple[Snapshot, int] | None = None
        self._committer: Committer | None = None

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Check how the checkpoint is saved: together by all ranks.

        Raises: CallError: `use_collectives` is False.
        """
        if not kwargs.get("use_collectives", True):
            raise CallError("A checkpoint is one for all ranks; leave out use_collectives=False.")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan as it is.

        Raises: CallError: the planner caches plans.
        """
        if not plan.usable:
            raise CallError(
                "A planner that caches plans would write to the place of the checkpoint before; "
                "give one without enable_plan_caching."
            )
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        self._committer, snapshot = self._begun()
        self._order = snapshot, len(plans)
        return [
            replace(plan, storage_data=_Order(snapshot=snapshot, share=share))
            for share, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the tensors and values of the plan, as this rank's share.

        Raises: CallError: the planner has dropped what the plan carries, or the ranks save
            different steps.
        """
        order = plan.storage_data
        if not isinstance(order, _Order):
            raise CallError(
                f"{type(planner).__name__}.finish_plan drops what the plan's storage_data holds; "
                "return the plan with it (dataclasses.replace)."
            )
        if order.snapshot.step != self._step:
            raise CallError(
                f"This rank saves step {self._step}, and the one that coordinates step "
                f"{order.snapshot.step}: one checkpoint would hold both; save the same step on all "
                "ranks."
            )
        sources: list[TensorSource] = []
        values: dict[str, Value] = {}
        for item in plan.items:
            if item.type is WriteItemType.BYTE_IO:
                values[item.index.fqn] = _value(item, planner, sources)
            else:
                sources.append(_source(item, planner))
        parts, pieces = write_parts(
            self._bucket(),
            order.snapshot.folder,
            sources,
            share=order.share,
            writer=secrets.token_hex(4),
        )
        written = Written(
            share=order.share,
            parts=parts,
            pieces=pieces,
            tensors=tuple(source.tensor for source in sources),
            values=values,
        )
        future: Future[list[WriteResult]] = Future()
        index = MetadataIndex(f"share {order.share}")
        size = sum(part.size for part in parts)
        future.set_result([WriteResult(index=index, size_in_bytes=size, storage_data=written)])
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Make the manifest, and a checkpoint of it.

        Raises:
            CallError: the ranks did not write all of a tensor.
            Fenced: another run or a newer checkpoint came in between.
            Refused: what another rank wrote cannot be read here.
        """
        committer, order = self._committer, self._order
        if committer is None or order is None:
            raise InvariantBroken("prepare_global_plan comes before finish.")
        self.reset()
        written = [result.storage_data for each in results for result in each]
        try:
            manifest = merge(self._header(committer, *order), metadata, written)
        except Damaged as exc:
            raise CallError(
                f"This cannot be saved: {exc} Save from all ranks that hold it."
            ) from exc
        self._read_back(manifest, written)
        if committer.commit(manifest) is CommitOutcome.TOO_LATE:
            raise Fenced(
                f"Step {self._step} was not saved to {self._url}: a newer checkpoint or another "
                "run came in between."
            )
        metadata.storage_meta = self.storage_meta()

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self._url, save_id=f"step {self._step}")

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        try:
            checked_url(os.fspath(checkpoint_id))
        except CallError:
            return False
        return True

    def _bucket(self) -> Bucket:
        return open_bucket(self._url, self._options, os.environ)

    def _read_back(self, manifest: Manifest, every: Sequence[Written]) -> None:
        """Raise Refused if this rank cannot read what each rank wrote: a folder of one name may be
        another one on each machine. Only the first save of a process is checked.
        """
        checked = os.getpid(), self._url
        if checked in _READ_BACK:
            return
        bucket, folder = self._bucket(), manifest.header.snapshot.folder

        def look(written: Written) -> None:
            for part in [each for each in written.parts if each.size][-1:]:
                try:
                    read_block(bucket, folder, part, (part.size - 1) // BLOCK_BYTES)
                except Damaged as exc:
                    raise Refused(
                        f"What rank {written.share} wrote to {self._url} cannot be read by the "
                        f"rank that coordinates the save ({exc}), so no checkpoint was made: give "
                        "a URL that is one place for all ranks."
                    ) from exc

        with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="elasticd-read") as pool:
            list(pool.map(look, every))
        _READ_BACK.add(checked)

    @staticmethod
    def _header(committer: Committer, snapshot: Snapshot, size: int) -> Header:
        return Header(
            snapshot=snapshot,
            job=committer.job,
            uid=committer.uid,
            epoch=0,
            world_size=size,
            shares=size,
            taken_unix_s=time.time(),
            version=__version__,
            skeleton="",
            tensors=(),
        )

    def _begun(self) -> tuple[Committer, Snapshot]:
        """Open the log for this step; only the coordinator does this."""
        bucket = self._bucket()
        log = CommitLog(bucket)
        committer = Committer(
            bucket=bucket,
            log=log,
            uid=self._uid or _uid_of(os.getpid()),
            job=self._job or self._url.rpartition("/")[2],
        )
        log_state = log.state()
        generation = 1
        if log_state.uid == committer.uid:
            generation = log_state.generation
            last = log_state.last.step if log_state.last is not None else -1
            if last == self._step:
                raise Refused(
                    f"{self._url} has a checkpoint of step {self._step} of this run already, and "
                    "checkpoints never change: count the steps on."
                )
            tried = Snapshot(run=log_state.run, generation=generation, step=self._step)
            if last > self._step or _is_there(bucket, tried.manifest):
                generation += 1  # Back to an earlier step, or a second try of one that failed.
        # It begins before what is to be saved: what a generation began with was committed before.
        run = committer.open(generation, max(0, self._step - 1))
        return committer, Snapshot(run=run, generation=generation, step=self._step)


def _source(item: WriteItem, planner: SavePlanner) -> TensorSource:
    data = item.tensor_data
    assert data is not None
    return TensorSource(
        tensor=described(item.index.fqn, data.properties.dtype, data.size),
        offsets=tuple(data.chunk.offsets),
        shape=tuple(data.chunk.sizes),
        resolve=lambda: _resolved(item, planner),
    )


def _resolved(item: WriteItem, planner: SavePlanner) -> torch.Tensor:
    found = planner.resolve_data(item)
    assert isinstance(found, torch.Tensor)
    return found


def _value(item: WriteItem, planner: SavePlanner, sources: list[TensorSource]) -> Value:
    """Flatten a value that is no tensor; tensors in it are written like any other."""
    name = item.index.fqn
    # What `resolve_data` returns of it is pickled.
    lookup = getattr(planner, "lookup_object", None)
    if lookup is None:
        raise CallError(
            f"{name} is no tensor, and {type(planner).__name__} cannot say what it is but pickled; "
            "use a planner that is derived from DefaultSavePlanner."
        )
    taken = tree.flatten(name, lookup(item.index))
    first = len(sources)
    for path, tensor in zip(tree.paths(taken), taken.tensors, strict=True):
        if isinstance(tensor, DTensor):
            raise CallError(
                f"{path} is a DTensor in a tuple, which no rank would write as a whole; put it "
                "into a dict or a list."
            )
        shape = tuple(tensor.shape)
        sources.append(
            TensorSource(
                tensor=described(path, tensor.dtype, shape),
                offsets=(0,) * len(shape),
                shape=shape,
                resolve=lambda tensor=tensor: tensor,  # type: ignore[misc]
            )
        )
    return Value(skeleton=taken.skeleton, tensors=tuple(range(first, len(sources))))


def _is_there(bucket: ReadableBucket, name: str) -> bool:
    try:
        bucket.read(name, 0)
    except ObjectMissing:
        return False
    return True


@cache
def _uid_of(pid: int) -> str:
    """Return one uid for all that a process saves; another after a fork."""
    return secrets.token_hex(8)
