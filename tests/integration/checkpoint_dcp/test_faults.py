"""All ranks load the same checkpoint, also when the newest is damaged or has just appeared."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from elasticd.checkpoint import Reader, Writer
from elasticd.checkpoint.format.entry import LogEntry
from tests.integration.checkpoint_dcp.troupe import Troupe, told

ROWS = 8

# --- scenes: what each rank does ----------------------------------------------------------------


def rows(value: float) -> DTensor:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return distribute_tensor(torch.full((ROWS, 4), value), mesh, [Shard(0)])


def save_steps(rank: int, url: str, *steps: int) -> None:
    for step in steps:
        save({"w": rows(float(step)), "step": step}, storage_writer=Writer(url, step=step))


def load_rows(rank: int, url: str, choice: dict[str, Any]) -> tuple[str, str, Any, float]:
    """Return what was written to stderr, the error, and the values."""
    state: dict[str, Any] = {"w": rows(0.0), "step": 0}
    said, error = told(lambda: load(state, storage_reader=Reader(url, **choice)))
    return said, error, state["step"], state["w"].to_local().unique().tolist()


class Behind(Reader):
    """Looked before the newest checkpoint was there."""

    def _entries(self) -> Iterator[LogEntry]:
        yield from list(super()._entries())[1:]


def load_late(rank: int, url: str, behind: int) -> tuple[Any, float]:
    state: dict[str, Any] = {"w": rows(0.0), "step": 0}
    load(state, storage_reader=Behind(url) if rank == behind else Reader(url))
    return state["step"], state["w"].to_local().unique().tolist()


def load_alone(rank: int, url: str) -> tuple[Any, bool]:
    """One rank of many loads, without the others."""
    state: dict[str, Any] = {"w": torch.zeros(ROWS, 4)}
    if rank == 1:
        load(state, storage_reader=Reader(url), no_dist=True)
    dist.barrier()
    return rank, bool(state["w"].any())


def load_in_subgroup(rank: int, url: str, is_told: bool) -> tuple[str, float]:
    """Ranks 1 and 2 load in a group of their own."""
    group = dist.new_group([1, 2])
    if rank == 0:
        return "", 0.0
    state: dict[str, Any] = {"w": torch.zeros(ROWS, 4)}
    reader = Reader(url, process_group=group if is_told else None)
    _, error = told(lambda: load(state, storage_reader=reader, process_group=group))
    return error, float(state["w"][0, 0])


def save_apart(rank: int, url: str) -> tuple[str, str]:
    """Rank 1 writes to another folder."""
    writer = Writer(f"{url}/other" if rank == 1 else url, step=5)
    return told(lambda: save({"w": rows(1.0)}, storage_writer=writer))


def save_other_steps(rank: int, url: str) -> tuple[str, str]:
    return told(lambda: save({"w": rows(1.0)}, storage_writer=Writer(url, step=5 + rank)))


# --- tests --------------------------------------------------------------------------------------


def spoil(folder: Path, step: int, share: int, *, is_gone: bool = False) -> None:
    """Damage what one rank wrote of a step."""
    (part,) = folder.glob(f"steps/{step:012d}-*/{share:05d}-*.bin")
    raw = bytearray(part.read_bytes())
    raw[5] ^= 1
    part.unlink()
    if not is_gone:
        part.write_bytes(raw)


def test_one_flipped_bit_sends_all_ranks_back(troupe: Troupe, tmp_path: Path) -> None:
    """Only rank 2 of 4 reads the damaged part; all load the one before, and rank 0 says so."""
    troupe.play(save_steps, str(tmp_path), 10, 20, size=4)
    spoil(tmp_path, 20, 2)
    heard = troupe.play(load_rows, str(tmp_path), {}, size=4)
    assert [(error, step, values) for _, error, step, values in heard] == [("", 10, [10.0])] * 4
    assert "the checksum of its block 0 differs" in heard[0][0]
    assert [said for said, *_ in heard[1:]] == [""] * 3


def test_two_damaged_checkpoints_send_all_ranks_back_twice(troupe: Troupe, tmp_path: Path) -> None:
    """One with a flipped bit, the one before with a part that is gone."""
    troupe.play(save_steps, str(tmp_path), 1, 2, 3, size=3)
    spoil(tmp_path, 3, 0)
    spoil(tmp_path, 2, 1, is_gone=True)
    heard = troupe.play(load_rows, str(tmp_path), {}, size=3)
    assert [(error, step, values) for _, error, step, values in heard] == [("", 1, [1.0])] * 3


def test_nothing_good_is_an_error_on_all_ranks(troupe: Troupe, tmp_path: Path) -> None:
    """The only checkpoint is damaged for one rank: all raise, none waits for another."""
    troupe.play(save_steps, str(tmp_path), 10, size=3)
    spoil(tmp_path, 10, 1)
    for _, error, *_ in troupe.play(load_rows, str(tmp_path), {}, size=3):
        assert "step 10 (run 1, generation 1) is damaged" in error


def test_a_step_that_was_asked_for_is_not_replaced(troupe: Troupe, tmp_path: Path) -> None:
    """With `step` or `number` a damaged checkpoint is an error."""
    troupe.play(save_steps, str(tmp_path), 10, 20, size=2)
    spoil(tmp_path, 20, 1)
    for choice in ({"step": 20}, {"number": 3}):
        for _, error, *_ in troupe.play(load_rows, str(tmp_path), choice, size=2):
            assert "step 20 (run 1, generation 1) is damaged" in error
    assert [e for _, e, *_ in troupe.play(load_rows, str(tmp_path), {"step": 10}, size=2)] == [
        "",
        "",
    ]


def test_a_damaged_manifest_is_passed_over_with_one_sentence(
    troupe: Troupe, tmp_path: Path
) -> None:
    """All ranks find it; one says it."""
    troupe.play(save_steps, str(tmp_path), 10, 20, size=2)
    (manifest,) = tmp_path.glob("steps/000000000020-*/manifest.json")
    manifest.write_bytes(b"{}")
    heard = troupe.play(load_rows, str(tmp_path), {}, size=2)
    assert [step for *_, step, _ in heard] == [10, 10]
    assert "step 20" in heard[0][0] and "Loading the one before" in heard[0][0]
    assert heard[1][0] == ""


def test_ranks_that_found_different_checkpoints_load_the_older(
    troupe: Troupe, tmp_path: Path
) -> None:
    """A commit between two ranks' looks must not mix two states, whoever is late."""
    troupe.play(save_steps, str(tmp_path), 10, 20, size=2)
    for behind in (0, 1, 2):
        assert troupe.play(load_late, str(tmp_path), behind, size=3) == [(10, [10.0])] * 3


def test_one_rank_of_many_may_load_alone(troupe: Troupe, tmp_path: Path) -> None:
    """`no_dist` in a process that has a process group waits for nobody."""
    troupe.play(save_steps, str(tmp_path), 10, size=2)
    assert troupe.play(load_alone, str(tmp_path), size=2) == [(0, False), (1, True)]


def test_folder_that_is_another_one_for_a_rank_makes_no_checkpoint(
    troupe: Troupe, tmp_path: Path
) -> None:
    """As one of the same name on two machines: the first save says so, and leaves no entry."""
    for _, error in troupe.play(save_apart, str(tmp_path), size=3):
        assert "What rank 1 wrote to file://" in error and "one place for all ranks" in error
    assert "There is no checkpoint" in told(lambda: load({}, storage_reader=Reader(tmp_path)))[1]
    troupe.play(save_steps, str(tmp_path), 10, size=3)


def test_ranks_that_save_other_steps_make_no_checkpoint(troupe: Troupe, tmp_path: Path) -> None:
    """It would hold tensors of two steps."""
    for _, error in troupe.play(save_other_steps, str(tmp_path), size=2):
        assert "This rank saves step 6, and the one that coordinates step 5" in error
    assert "There is no checkpoint" in told(lambda: load({}, storage_reader=Reader(tmp_path)))[1]


def test_a_subgroup_goes_back_together_if_the_reader_knows_it(
    troupe: Troupe, tmp_path: Path
) -> None:
    """Otherwise the damage is an error on its ranks."""
    troupe.play(save_steps, str(tmp_path), 10, 20, size=2)
    spoil(tmp_path, 20, 1)
    assert troupe.play(load_in_subgroup, str(tmp_path), True, size=3)[1:] == [("", 10.0)] * 2
    for error, _ in troupe.play(load_in_subgroup, str(tmp_path), False, size=3)[1:]:
        assert "is not as it was written" in error
