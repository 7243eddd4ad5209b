"""`Reader`: torch.distributed.checkpoint loads what elasticd saved.

Each rank finds the newest good checkpoint by itself: `read_metadata` may be called by one rank
alone, and knows nothing of the process group that a load uses. The ranks' findings travel with the
plans that DCP gathers anyway. The coordinator takes the oldest, and a rank that found another one
plans again. Only whether all blocks were good is asked of all ranks afterwards, so that all or none
go back to the checkpoint before.
"""

import io
import operator
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from elasticd.checkpoint.commit.committer import read_manifest
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.commit.read_lease import reading
from elasticd.checkpoint.format.entry import LogEntry
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Manifest
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.location import checked_url, open_bucket
from elasticd.dcp.box_read import PieceBox, boxes
from elasticd.dcp.catalog import Catalog, catalog
from elasticd.dcp.state_dict_match import check_planner
from elasticd.errors import CallError, InvariantBroken, NotFound
from elasticd.tensors.tensor_spec import dtype_of

__all__ = ["Reader"]

CONNECTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A checkpoint that can be loaded from."""

    entry: LogEntry
    manifest: Manifest
    catalog: Catalog

    def __str__(self) -> str:
        return f"the checkpoint of {self.entry.snapshot}"


@dataclass(frozen=True, slots=True)
class _Agreed:
    """The message of the coordinator to each rank."""

    number: int
    size: int
    """How many ranks load."""


class Reader(StorageReader):
    """Reads checkpoints below a URL for `torch.distributed.checkpoint.load`.

    `number` or `step` choose one; otherwise it is the newest that is whole: if it turns out to be
    damaged, that before it is loaded, and rank 0 says so on stderr. `process_group` is needed for
    this if `load` was given one that is not the default group.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, Any] | None = None,
        number: int | None = None,
        step: int | None = None,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        """`storage_options` go to fsspec; a value `env:NAME` or `file:PATH` is looked up there.

        Raises: CallError: `number` or `step` is no whole number.
        """
        self._options = dict(storage_options or {})
        self._number, self._step = _whole_number("number", number), _whole_number("step", step)
        self._group = process_group
        self.reset(url)

    @property
    def checkpoint_id(self) -> str:
        return self._url

    @property
    def snapshot(self) -> Snapshot:
        """The checkpoint that it was; known once its metadata was read."""
        return self._the_found().entry.snapshot

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Forget what was found; `checkpoint_id` is another URL."""
        if checkpoint_id is not None:
            self._url = checked_url(os.fspath(checkpoint_id), flag="URL")
        self._bucket: Bucket = open_bucket(self._url, self._options, os.environ)
        self._found: _Found | None = None
        self._damaged: list[str] = []
        self._is_coordinator = False

    def read_metadata(self) -> Metadata:
        """Find the checkpoint and describe it, without asking another rank.

        Raises: NotFound: there is no checkpoint. CallError: the requested checkpoint, or every one,
        is damaged.
        """
        self._damaged = []
        self._found = self._newest()
        return self._described()

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool) -> None:
        # The planner would stop at the first difference; it is a local of who calls this, and if
        # it should not be there any more, the planner's own error is good enough.
        planner = sys._getframe(1).f_locals.get("planner")
        check_planner(planner, metadata, str(self._the_found()))
        self._is_coordinator = is_coordinator

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return replace(plan, storage_data=self._the_found().entry.number)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        agreed = _Agreed(min(plan.storage_data for plan in plans), len(plans))
        if self._damaged:
            _say(f"{' '.join(self._damaged)} Loading the one before.")
        return [replace(plan, storage_data=agreed) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read what the plan asks for, from an older checkpoint if the newest is damaged.

        Raises: CallError: the planner has dropped what the plan carries.
        """
        agreed = plan.storage_data
        if not isinstance(agreed, _Agreed):
            raise CallError(
                f"{type(planner).__name__}.finish_plan drops what the plan's storage_data holds; "
                "return the plan with it (dataclasses.replace)."
            )
        number, has_begun = agreed.number, False
        while number:
            with ExitStack() as lease:
                failure: Exception | None = None
                try:
                    if self._is_coordinator:  # For all: until every rank has said how it went.
                        lease.enter_context(reading(self._bucket, number))
                    if number != self._the_found().entry.number:
                        plan = self._planned_again(number, planner, has_begun=has_begun)
                    has_begun = True
                    self._load(plan, planner)
                except Exception as exc:
                    failure = exc
                number = self._following(number, failure, agreed.size, planner)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        try:
            checked_url(os.fspath(checkpoint_id))
        except CallError:
            return False
        return True

    # --- which checkpoint -------------------------------------------------------------------

    @property
    def _is_free(self) -> bool:
        """True if nobody asked for a certain checkpoint."""
        return self._number is None and self._step is None

    def _the_found(self) -> _Found:
        if self._found is None:
            raise InvariantBroken("read_metadata comes before all else.")
        return self._found

    def _described(self) -> Metadata:
        found = self._the_found()
        return replace(
            found.catalog.metadata,
            storage_meta=StorageMeta(
                checkpoint_id=self._url, load_id=f"{found.entry.number} {found.entry.uid}"
            ),
        )

    def _newest(self, below: int | None = None) -> _Found:
        """Return the newest good checkpoint that may be loaded, of a number less than `below`."""
        seen = 0
        for entry in self._entries():
            if below is not None and entry.number >= below:
                continue
            seen += 1
            try:
                return self._opened(entry)
            except Damaged as exc:
                self._damaged.append(
                    f"The checkpoint of {entry.snapshot} in {self._url} is damaged: {exc}"
                )
                if not self._is_free:
                    break
        if seen:
            raise CallError(f"{' '.join(self._damaged)} There is no other to load instead.")
        raise NotFound(self._absence())

    def _opened(self, entry: LogEntry) -> _Found:
        manifest = read_manifest(self._bucket, entry)
        return _Found(entry=entry, manifest=manifest, catalog=catalog(manifest))

    def _entries(self) -> Iterator[LogEntry]:
        for entry in CommitLog(self._bucket).checkpoints():
            if self._number in (None, entry.number) and self._step in (None, entry.snapshot.step):
                yield entry

    def _absence(self) -> str:
        there = [
            entry
            for entry, _ in zip(CommitLog(self._bucket).checkpoints(), range(10), strict=False)
        ]
        if not there:
            return f"There is no checkpoint in {self._url}: is it the right URL?"
        steps = ", ".join(f"{entry.snapshot.step} (number {entry.number})" for entry in there)
        asked = f"step {self._step}" if self._number is None else f"number {self._number}"
        return f"{self._url} has no checkpoint of {asked}; there are those of step {steps}."

    def _planned_again(self, number: int, planner: LoadPlanner, *, has_begun: bool) -> LoadPlan:
        """Plan for another checkpoint than DCP did; `has_begun`: that one is loaded in part."""
        before = self._the_found().catalog.metadata.state_dict_metadata
        if not isinstance(planner, DefaultLoadPlanner):
            raise CallError(
                f"The ranks found different checkpoints in {self._url}, and "
                f"{type(planner).__name__} cannot plan twice: give the Reader a step."
            )
        for entry in CommitLog(self._bucket).checkpoints():
            if entry.number == number:
                self._found = self._opened(entry)
                planner.metadata = self._described()
                check_planner(planner, planner.metadata, str(self._found))
                there = planner.metadata.state_dict_metadata
                if has_begun:
                    self._check_whole(
                        [name for name in planner.state_dict if name in before], there
                    )
                return planner.finish_plan(planner.create_local_plan())
        raise Damaged(f"The checkpoint number {number} is gone from {self._url}.")

    def _check_whole(self, loaded: Sequence[str], there: Mapping[str, Any]) -> None:
        """Refuse an older checkpoint that would leave values of the damaged one beside its own."""
        if mixed := [name for name in loaded if name not in there]:
            raise CallError(
                f"A checkpoint in {self._url} is damaged, and {self._the_found()} before it lacks "
                f"{len(mixed)} of the values that the other has, as {mixed[0]}: give the Reader a "
                "step, and a state dict that was not loaded into."
            )

    def _following(
        self, number: int, failure: Exception | None, size: int, planner: LoadPlanner
    ) -> int:
        """Return which checkpoint to load instead of this one; 0 if this one was loaded.

        Raises: whatever failed here, if no other can be loaded.
        """
        is_damaged = isinstance(failure, Damaged)
        if size > 1 and size != dist.get_world_size(self._group):
            # A load by other ranks than we could ask: DCP tells them what failed.
            if failure is not None:
                raise failure
            return 0
        every = self._gathered((str(failure) if is_damaged else "", failure is None), size)
        if all(is_well for _, is_well in every):
            return 0
        why = next((text for text, _ in every if text), "")
        has_other = any(not text and not is_well for text, is_well in every)
        can_choose = self._is_free and isinstance(planner, DefaultLoadPlanner)
        lower = 0
        if can_choose and not has_other:
            lower = min(self._gathered(self._number_below(number), size))
        if lower == 0:
            if is_damaged:
                raise CallError(f"{self._the_found()} is damaged: {failure}") from failure
            if failure is not None:
                raise failure
            return 0
        if size == 1 or dist.get_rank(self._group) == 0:
            _say(f"A checkpoint in {self._url} is damaged: {why} Loading the one before.")
        return lower

    def _number_below(self, number: int) -> int:
        try:
            return self._newest(number).entry.number
        except CallError:
            return 0

    def _gathered(self, value: Any, size: int) -> list[Any]:
        if size == 1:
            return [value]
        every: list[Any] = [None] * size
        # Ranks of one world run one script, and torch's own loader gathers its plans so.
        dist.all_gather_object(every, value, group=self._group)  # noqa: TID251
        return every

    # --- what is in it ----------------------------------------------------------------------

    def _load(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        found = self._the_found()
        wanted, items = [], []
        for item in plan.items:
            if item.type is LoadItemType.BYTE_IO:
                continue
            index = item.storage_index
            piece = found.catalog.pieces[index.fqn, tuple(index.offset or ())]
            wanted.append(PieceBox(piece, tuple(item.storage_offsets), tuple(item.lengths)))
            items.append(item)
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="elasticd-read") as pool:
            for at, values in boxes(self._bucket, found.manifest, wanted, pool):
                _put(planner, items[at], values)
            for item in plan.items:
                if item.type is LoadItemType.BYTE_IO:
                    planner.load_bytes(item, self._saved(item.storage_index.fqn, pool))

    def _saved(self, name: str, pool: ThreadPoolExecutor) -> io.BytesIO:
        """Return a value as the planner wants it: pickled, by ourselves, just now."""
        found = self._the_found()
        inside = {each: self._whole(each, pool) for each in found.catalog.tensors[name]}
        stream = io.BytesIO()
        # The planner unpickles it: made here, of what was read as JSON.
        torch.save(found.catalog.value(name, inside.__getitem__), stream)  # noqa: TID251
        stream.seek(0)
        return stream

    def _whole(self, index: int, pool: ThreadPoolExecutor) -> torch.Tensor:
        manifest = self._the_found().manifest
        tensor = manifest.header.tensors[index]
        made = torch.empty(tensor.shape, dtype=dtype_of(tensor))
        of_it = [at for at, piece in enumerate(manifest.pieces) if piece.tensor == index]
        wanted = [PieceBox(at, (0,) * len(tensor.shape), manifest.pieces[at].shape) for at in of_it]
        for at, values in boxes(self._bucket, manifest, wanted, pool):
            piece = manifest.pieces[wanted[at].piece]
            place = made
            for dimension, (start, size) in enumerate(zip(piece.offsets, piece.shape, strict=True)):
                place = place.narrow(dimension, start, size)
            place.copy_(values)
        return made


def _whole_number(name: str, value: Any) -> int | None:
    if value is None:
        return None
    with suppress(TypeError):
        if type(value) is not bool:
            return operator.index(value)
    raise CallError(f"{name} is {value!r}: give a whole number, or leave it out.")


def _put(planner: LoadPlanner, item: ReadItem, values: torch.Tensor) -> None:
    place = planner.resolve_tensor(item).detach()
    if place.shape != values.shape:
        raise CallError(
            f"{item.dest_index.fqn}: the planner gave a place of the shape {list(place.shape)} for "
            f"{list(values.shape)}."
        )
    place.copy_(values)
    planner.commit_tensor(item, place)


def _say(text: str) -> None:
    sys.stderr.write(f"elasticd: {text}\n")
