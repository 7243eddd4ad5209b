"""What one process saved with stock DCP comes back bit for bit, and what does not fit is named."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    _EmptyStateDictLoadPlanner,
)
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict, load
from torch.distributed.checkpoint.state_dict_saver import save

from elasticd.checkpoint import Reader, Writer
from elasticd.checkpoint.commit.committer import Committer, read_manifest
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.commit.read_lease import leased
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.dcp import box_read
from elasticd.errors import CallError, NotFound

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def odd_state() -> dict[str, Any]:
    """Tensors of all kinds, and values of all kinds."""
    torch.manual_seed(3)
    base = torch.randn(20, 30)
    bits = torch.tensor([0x7FC1, 0xFF81, 0x8000, 0x0001], dtype=torch.int32).to(torch.uint16)
    return {
        "model": {
            "plain": torch.randn(7, 3),
            "transposed": base.t()[3:11, ::2],
            "row of the same storage": base[4],
            "all of the same storage": base,
            "bfloat16": torch.randn(9).bfloat16(),
            "nan": bits.view(torch.bfloat16),
            "none": torch.empty(0, 4),
            "one": torch.tensor(2.5, dtype=torch.float64),
            "yes": torch.tensor([True, False, True]),
            "complex": torch.randn(4, dtype=torch.complex64).conj(),
            "float8": torch.randn(6).to(torch.float8_e4m3fn),
        },
        "lists": [torch.arange(4), 5, {"deep": torch.zeros(2), "text": "x"}],
        "pair": (torch.arange(3), "y", [torch.ones(2)]),
        "plain": {"lr": 0.1, "nan": math.nan, "none": None, "betas": (0.9, 0.99), "ids": [1, 2]},
        "dtype": torch.bfloat16,
        "step": 7,
    }


def emptied(value: Any) -> Any:
    """The same structure, with nothing of the values."""
    if isinstance(value, torch.Tensor):
        return torch.zeros(value.shape, dtype=value.dtype)
    if isinstance(value, dict):
        return {key: emptied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [emptied(item) for item in value]
    return None


def same(one: Any, other: Any) -> bool:
    """True if nothing differs, not even a bit of a NaN."""
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and bits_of(one) == bits_of(other)
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(map(same, one, other))
    return repr(one) == repr(other)


def bits_of(tensor: torch.Tensor) -> bytes:
    whole = tensor.resolve_conj().contiguous().view(-1).view(torch.uint8)
    return bytes(whole.numpy().tobytes())


def sentence(call: Callable[[], Any], kind: type[Exception]) -> str:
    """The error of this kind that DCP passed on."""
    with pytest.raises(CheckpointException) as caught:
        call()
    ((error, _),) = caught.value.failures.values()
    assert isinstance(error, kind), error
    return str(error)


def test_everything_comes_back_bit_by_bit(tmp_path: Path) -> None:
    """Nested, without a dimension, empty, bfloat16, strided, conjugated, sharing a storage."""
    saved = odd_state()
    save(saved, storage_writer=Writer(tmp_path, step=1))
    found = emptied(saved)
    reader = Reader(tmp_path)
    load(found, storage_reader=reader)
    assert same(saved, found)
    assert reader.snapshot == Snapshot(run=1, generation=1, step=1)


def test_a_state_is_built_of_the_checkpoint_alone(tmp_path: Path) -> None:
    """As torch's converters do, which have no model; the planner's paths must be there."""
    saved = odd_state()
    save(saved, storage_writer=Writer(tmp_path, step=1))
    found: dict[str, Any] = {}
    _load_state_dict(
        found,
        Reader(tmp_path),
        planner=_EmptyStateDictLoadPlanner(),  # type: ignore[no-untyped-call]
        no_dist=True,
    )
    assert same(saved, found)


def test_values_are_converted_to_the_type_of_their_place(tmp_path: Path) -> None:
    """As stock DCP does: a half is loaded into a float."""
    save({"w": torch.tensor([1.5, 2.5]).bfloat16()}, storage_writer=Writer(tmp_path, step=1))
    found = {"w": torch.zeros(2)}
    load(found, storage_reader=Reader(tmp_path))
    assert found["w"].tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (torch.complex64, torch.float32),
        (torch.float32, torch.int64),
        (torch.int64, torch.bool),
    ],
)
def test_values_that_their_place_would_cut_off_are_refused(
    tmp_path: Path, there: torch.dtype, here: torch.dtype
) -> None:
    """The imaginary halves, what is behind the point: nobody would see that it is gone."""
    save({"w": torch.ones(2, dtype=there)}, storage_writer=Writer(tmp_path, step=1))
    found = {"w": torch.zeros(2, dtype=here)}
    said = sentence(lambda: load(found, storage_reader=Reader(tmp_path)), CallError)
    assert f"w ({there} there, here {here})" in said
    assert not found["w"].any()


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (torch.zeros(1).expand(2), "expanded here, several of its elements are one in memory"),
        (torch.zeros(2).to_sparse(), "dense there, here torch.sparse_coo"),
    ],
    ids=["expanded", "sparse"],
)
def test_place_that_cannot_be_filled_is_refused_before_anything_is_read(
    tmp_path: Path, here: torch.Tensor, why: str
) -> None:
    """In the middle of the load torch would say so, and a part of the state be the checkpoint's."""
    save({"a": torch.ones(2), "w": torch.ones(2)}, storage_writer=Writer(tmp_path, step=1))
    found = {"a": torch.zeros(2), "w": here}
    said = sentence(lambda: load(found, storage_reader=Reader(tmp_path)), CallError)
    assert f"w ({why}" in said
    assert not found["a"].any()


def test_older_checkpoint_that_lacks_what_the_damaged_one_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partial load would leave values of the one beside those of the other."""
    save({"old": torch.ones(2 << 20)}, storage_writer=Writer(tmp_path, step=1))
    state = {"new": torch.full((2 << 20,), 2.0), "old": torch.full((2 << 20,), 2.0)}
    save(state, storage_writer=Writer(tmp_path, step=2))
    monkeypatch.setattr(box_read, "BATCH_BYTES", 1)  # As many tensors are in a large model.
    entry = next(iter(CommitLog(FolderBucket(str(tmp_path))).checkpoints()))
    manifest = read_manifest(FolderBucket(str(tmp_path)), entry)
    newest = next(each for each in manifest.pieces[::-1])
    part = tmp_path / entry.snapshot.folder / manifest.parts[newest.part].name
    with part.open("r+b") as file:
        file.seek(newest.at)
        file.write(b"damaged!")
    found = {"new": torch.zeros(2 << 20), "old": torch.zeros(2 << 20)}
    planner = DefaultLoadPlanner(allow_partial_load=True)
    said = sentence(
        lambda: load(found, storage_reader=Reader(tmp_path), planner=planner), CallError
    )
    assert "lacks 1 of the values that the other has, as new" in said
    only = {"old": torch.zeros(2 << 20)}
    load(only, storage_reader=Reader(tmp_path), planner=DefaultLoadPlanner(allow_partial_load=True))
    assert only["old"].eq(1.0).all()


def test_only_what_is_asked_for_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 24 MiB, a small tensor in the last block costs that block."""
    large = torch.zeros(24 << 18)
    save({"large": large, "small": torch.ones(3)}, storage_writer=Writer(tmp_path, step=1))
    read: list[int] = []
    inner = FolderBucket.read_into

    def counted(self: FolderBucket, name: str, start: int, place: memoryview) -> int:
        read.append(len(place))
        return inner(self, name, start, place)

    monkeypatch.setattr(FolderBucket, "read_into", counted)
    found = {"small": torch.zeros(3)}
    load(found, storage_reader=Reader(tmp_path))
    assert found["small"].tolist() == [1.0, 1.0, 1.0]
    assert sum(read) <= 4 << 20


def test_nobody_deletes_what_is_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While bytes are read there is a lease on the checkpoint, and none afterwards."""
    save({"w": torch.ones(3)}, storage_writer=Writer(tmp_path, step=1))
    seen: list[set[int]] = []
    inner = FolderBucket.read_into

    def looked(self: FolderBucket, name: str, start: int, place: memoryview) -> int:
        seen.append(set(leased(self)))
        return inner(self, name, start, place)

    monkeypatch.setattr(FolderBucket, "read_into", looked)
    load({"w": torch.zeros(3)}, storage_reader=Reader(tmp_path))
    assert seen == [{2}]
    assert not list(leased(FolderBucket(str(tmp_path))))


def test_ten_differences_are_named_and_the_others_counted(tmp_path: Path) -> None:
    """Names that are not there, other shapes, and values where tensors are."""
    save(
        {"a": torch.ones(2, 3), "b": torch.ones(1), "c": 5},
        storage_writer=Writer(tmp_path, step=4),
    )
    found: dict[str, Any] = {f"new{index}": torch.ones(1) for index in range(10)}
    found |= {"a": torch.ones(3, 2), "b": 1, "c": 6}
    said = sentence(lambda: load(found, storage_reader=Reader(tmp_path)), CallError)
    assert "12 of 13 values do not fit the checkpoint of step 4 (run 1, generation 1)" in said
    assert "a ([2, 3] there, here [3, 2]), b (a tensor there, here int), new0 (not there)" in said
    assert "new7 (not there), and 2 more;" in said


def test_a_partial_load_leaves_what_is_not_there(tmp_path: Path) -> None:
    """The planner's own option still decides."""
    save({"a": torch.ones(2)}, storage_writer=Writer(tmp_path, step=1))
    found = {"a": torch.zeros(2), "new": torch.full((1,), 9.0)}
    planner = DefaultLoadPlanner(allow_partial_load=True)
    load(found, storage_reader=Reader(tmp_path), planner=planner)
    assert (found["a"].tolist(), found["new"].tolist()) == ([1.0, 1.0], [9.0])


def test_steps_and_numbers_choose_a_checkpoint(tmp_path: Path) -> None:
    """Without them it is the newest; those that are not there are answered with what is."""
    for step in (10, 20):
        save({"a": step}, storage_writer=Writer(tmp_path, step=step))
    for choice, step in (({}, 20), ({"step": 10}, 10), ({"number": 2}, 10)):
        found = {"a": 0}
        load(found, storage_reader=Reader(tmp_path, **choice))  # type: ignore[arg-type]
        assert found == {"a": step}
    with pytest.raises(NotFound, match=r"no checkpoint of step 15; .* 20 \(number 3\), 10 "):
        Reader(tmp_path, step=15).read_metadata()


@pytest.mark.parametrize("wrong", ["10", 10.0, True])
@pytest.mark.parametrize("name", ["step", "number"])
def test_step_that_is_no_whole_number_is_refused(tmp_path: Path, name: str, wrong: Any) -> None:
    """`no checkpoint of step 10; there are those of step 10` helps nobody."""
    with pytest.raises(CallError, match=f"{name} is {wrong!r}: give a whole number"):
        Reader(tmp_path, **{name: wrong})
    save({"a": 1}, storage_writer=Writer(tmp_path, step=10))
    Reader(tmp_path, step=torch.tensor(10)).read_metadata()  # type: ignore[arg-type]


def test_an_empty_place_is_said_to_be_empty(tmp_path: Path) -> None:
    """It may be the wrong URL; DCP puts its own words around the sentence."""
    with pytest.raises(NotFound, match=r"There is no checkpoint in file://.*right URL"):
        Reader(tmp_path / "nowhere").read_metadata()
    with pytest.raises(CheckpointException) as caught:
        load({"a": 1}, storage_reader=Reader(tmp_path / "nowhere"))
    # torch 2.9 drops what a reader raises, and ends with an assertion of its own.
    assert "There is no checkpoint in" in str(caught.value) or torch.__version__.startswith("2.9.")


@pytest.mark.parametrize("skeleton", ["", "[", '["state",{"x":99}]', '["state",{"no":1}]'])
def test_a_skeleton_that_is_none_counts_as_damage(
    tmp_path: Path, skeleton: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever wrote it: nothing of it is run, and the checkpoint before is loaded."""
    save({"a": torch.ones(2)}, storage_writer=Writer(tmp_path, step=1, uid="u", job="j"))
    bucket = FolderBucket(str(tmp_path))
    log = CommitLog(bucket)
    committer = Committer(bucket=bucket, log=log, uid="u", job="j")
    manifest = read_manifest(bucket, next(log.checkpoints()))
    snapshot = replace(manifest.header.snapshot, step=2)
    header = replace(manifest.header, snapshot=snapshot, skeleton=skeleton)
    committer.commit(replace(manifest, header=header))
    found = {"a": torch.zeros(2)}
    load(found, storage_reader=Reader(tmp_path))
    assert found["a"].tolist() == [1.0, 1.0]
    assert capsys.readouterr().err.count("Loading the one before") == 1


def test_another_url_may_be_given_to_load(tmp_path: Path) -> None:
    """DCP calls it the checkpoint's id."""
    save({"a": 3}, storage_writer=Writer(tmp_path / "b", step=1))
    found = {"a": 0}
    load(found, checkpoint_id=tmp_path / "b", storage_reader=Reader(tmp_path / "a"))
    assert found == {"a": 3}
    assert Reader.validate_checkpoint_id("s3://bucket/folder")
    assert not Reader.validate_checkpoint_id("nothing://bucket/folder")
