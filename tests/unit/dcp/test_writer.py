"""Checkpoints never change, nothing counts before its entry, and nothing is pickled."""

import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from elasticd.checkpoint import Reader, Writer
from elasticd.checkpoint.commit.committer import CommitOutcome, Committer
from elasticd.checkpoint.format import share_layout as plan_module
from elasticd.errors import CallError, Fenced, Refused
from tests.fixtures.patience import patience_s
from tests.unit.dcp.test_reader import sentence

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def saved(folder: Path, value: Any, step: int, **more: Any) -> None:
    save({"a": value}, storage_writer=Writer(folder, step=step, **more))


def loaded(folder: Path, **more: Any) -> Any:
    found = {"a": None}
    load(found, storage_reader=Reader(folder, **more))
    return found["a"]


@pytest.mark.parametrize("url", ["s3:bucket/x", Path("s3://bucket/x"), "memory://x"])
def test_url_that_is_no_place_for_all_ranks_is_refused(url: str | Path) -> None:
    """A folder of that name on each machine, or the memory of each process; also by the reader."""
    for make in (lambda: Writer(url, step=1), lambda: Reader(url)):
        with pytest.raises(
            CallError, match=r"^URL (s3:/?bucket/x is no URL|memory://x is the mem)"
        ):
            make()
    assert not Writer.validate_checkpoint_id(url) and not Reader.validate_checkpoint_id(url)


def contents(folder: Path) -> dict[str, bytes]:
    """All objects but the hint, which may change."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "hint.json"
    }


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "a is a builtins.object"),
        ({"b": [{1, 2}]}, r"a\.b\.?\[?0"),
        (b"bytes", "a is a builtins.bytes"),
        (torch.eye(3).to_sparse(), "a is a tensor without ordinary memory"),
        ((torch.ones(1), {"c": print}), r"a\[1\]\.c is a builtins"),
    ],
)
def test_what_is_not_plain_is_refused_by_name(tmp_path: Path, value: Any, said: str) -> None:
    """It could only be pickled; the checkpoint before stays the newest."""
    saved(tmp_path, 1, 1)
    with pytest.raises(BaseException, match=said):
        saved(tmp_path, value, 2)
    assert loaded(tmp_path) == 1


def test_nothing_that_stands_is_ever_written_over(tmp_path: Path) -> None:
    """Neither by the same step of the same run nor by later ones."""
    saved(tmp_path, torch.ones(3), 1)
    before = contents(tmp_path)
    said = sentence(lambda: saved(tmp_path, torch.zeros(3), 1), Refused)
    assert "has a checkpoint of step 1 of this run already" in said
    assert contents(tmp_path) == before
    saved(tmp_path, torch.zeros(3), 2)
    assert contents(tmp_path).items() >= before.items()


def test_a_run_may_go_back_to_an_earlier_step(tmp_path: Path) -> None:
    """After a rollback in the same process: what it saves from there on is the newest."""
    for step in (10, 20, 15, 20):
        saved(tmp_path, step * 1.5, step)
        assert loaded(tmp_path) == step * 1.5
    assert Reader(tmp_path, step=10).read_metadata() is not None


def test_a_crash_before_the_entry_leaves_the_older_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parts are there, and nobody looks at them; a second try writes elsewhere."""
    saved(tmp_path, torch.ones(3), 1)
    inner = Committer.commit

    def crash(self: Committer, manifest: Any) -> CommitOutcome:
        self.bucket.create(manifest.header.snapshot.manifest, manifest.to_json())
        raise RuntimeError("power is gone")

    monkeypatch.setattr(Committer, "commit", crash)
    with pytest.raises(BaseException, match="power is gone"):
        saved(tmp_path, torch.zeros(3), 2)
    before = contents(tmp_path)
    found = {"a": torch.zeros(3)}
    load(found, storage_reader=Reader(tmp_path))
    assert found["a"].tolist() == [1.0] * 3
    monkeypatch.setattr(Committer, "commit", inner)
    saved(tmp_path, torch.full((3,), 2.0), 2)
    load(found, storage_reader=Reader(tmp_path))
    assert found["a"].tolist() == [2.0] * 3
    assert contents(tmp_path).items() >= before.items()


def test_an_older_run_is_fenced_by_a_newer_one(tmp_path: Path) -> None:
    """Two processes that believe to be the one: the later one rules."""
    saved(tmp_path, 1, 1, uid="one")
    saved(tmp_path, 2, 1, uid="two")
    sentence(lambda: saved(tmp_path, 3, 2, uid="one"), Fenced)
    assert loaded(tmp_path) == 2


def test_a_run_that_was_overtaken_while_it_wrote_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts were on the way when another run began."""
    inner = Writer.write_data

    def overtaken(self: Writer, *args: Any) -> Any:
        monkeypatch.setattr(Writer, "write_data", inner)
        saved(tmp_path, 9, 1, uid="two")
        return inner(self, *args)

    monkeypatch.setattr(Writer, "write_data", overtaken)
    said = sentence(lambda: saved(tmp_path, 8, 5, uid="one"), Fenced)
    assert "Step 5 was not saved" in said
    assert loaded(tmp_path) == 9


def test_a_url_is_one_jobs(tmp_path: Path) -> None:
    """By default the job is called as the folder; a copy elsewhere says whose it is."""
    saved(tmp_path / "mine", 1, 1)
    sentence(lambda: saved(tmp_path / "mine", 2, 2, job="other", uid="x"), Refused)
    saved(tmp_path / "mine", 3, 3, job="mine", uid="x")
    assert loaded(tmp_path / "mine") == 3


def test_many_parts_hold_one_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More parts than are in flight at once; between the pieces nothing but zeros."""
    monkeypatch.setattr(plan_module, "PART_BYTES", 1000)
    torch.manual_seed(0)
    state = {"v": torch.randn(5), "u": torch.randn(3), "w": torch.randn(50, 60)}
    save(state, storage_writer=Writer(tmp_path, step=1))
    parts = sorted(tmp_path.glob("steps/*/*.bin"))
    assert len(parts) > 10
    assert parts[0].read_bytes()[20:64] == bytes(44)
    found = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    load(found, storage_reader=Reader(tmp_path))
    assert all(torch.equal(state[name], found[name]) for name in state)


def test_a_planner_may_change_tensors_on_their_way(tmp_path: Path) -> None:
    """Stock DCP's own example; the plan must say what is written."""

    class Halves(DefaultSavePlanner):
        def resolve_data(self, write_item: Any) -> Any:
            return super().resolve_data(write_item).to(torch.float16)  # type: ignore[union-attr]

    class HonestHalves(Halves):
        def create_local_plan(self) -> Any:
            made = super().create_local_plan()
            for item in made.items:
                item.tensor_data.properties.dtype = torch.float16  # type: ignore[union-attr]
            return made

    writer = Writer(tmp_path, step=1)
    said = sentence(
        lambda: save({"w": torch.ones(2)}, storage_writer=writer, planner=Halves()), CallError
    )
    assert "w is planned as float32 [2]" in said
    writer = Writer(tmp_path, step=2)
    save({"w": torch.ones(2)}, storage_writer=writer, planner=HonestHalves())
    found = Reader(tmp_path).read_metadata().state_dict_metadata["w"]
    assert found.properties.dtype is torch.float16  # type: ignore[union-attr]


def test_a_cached_plan_is_refused(tmp_path: Path) -> None:
    """It would name the folder of the checkpoint before."""
    for step in (1, 2):
        writer = Writer(tmp_path, step=step)
        planner = DefaultSavePlanner(enable_plan_caching=True)
        if step == 1:
            save({"a": 1}, storage_writer=writer, planner=planner)
        else:
            said = sentence(
                lambda: save({"a": 2}, storage_writer=writer, planner=planner),  # noqa: B023
                CallError,
            )
            assert "enable_plan_caching" in said


def test_each_rank_for_itself_is_refused(tmp_path: Path) -> None:
    """`use_collectives=False` would make a checkpoint of each rank's share."""
    writer = Writer(tmp_path, step=1)
    with pytest.raises(CallError, match="use_collectives"):
        save({"a": 1}, storage_writer=writer, use_collectives=False)


@pytest.mark.parametrize("step", [-1, 1.0, True, "3", 10**15])
def test_a_step_is_a_whole_number(tmp_path: Path, step: Any) -> None:
    """It becomes part of a name."""
    with pytest.raises(CallError, match="step is"):
        Writer(tmp_path, step=step)


def test_a_writer_can_be_sent_to_another_process(tmp_path: Path) -> None:
    """Before it was used and in the midst of a save."""
    writer = Writer(tmp_path, step=3, storage_options={"key": "env:KEY"}, job="j")
    again = pickle.loads(pickle.dumps(writer))
    assert vars(again) == vars(writer)
    writer = Writer(tmp_path, step=3)
    writer.prepare_global_plan([])
    assert vars(pickle.loads(pickle.dumps(writer)))["_committer"] is None


PROCESS_SCRIPT = """
import sys, torch
import torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from elasticd.checkpoint import Writer

if __name__ == "__main__":
    store = dist.FileStore(sys.argv[1] + ".store", 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    for step in (1, 2):
        dcp.async_save(
            {"a": torch.full((3,), float(step))},
            storage_writer=Writer(sys.argv[1], step=step),
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
        ).result()
    dist.destroy_process_group()
"""


def test_the_process_type_of_async_save_works(tmp_path: Path) -> None:
    """Its process lives on between saves, so both are of one run."""
    script = tmp_path / "script.py"
    script.write_text(PROCESS_SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path / "c")],
        env={"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=patience_s(100.0),
    )
    assert done.returncode == 0, done.stderr
    found = {"a": torch.zeros(3)}
    reader = Reader(tmp_path / "c")
    load(found, storage_reader=reader)
    assert found["a"].tolist() == [2.0] * 3
    assert (reader.snapshot.run, reader.snapshot.step) == (1, 2)


def test_no_object_in_the_bucket_is_pickled(tmp_path: Path) -> None:
    """Every object is JSON, or raw numbers."""
    saved(tmp_path, {"lr": 0.1, "pair": (1, torch.zeros(2))}, 1)
    for name, data in contents(tmp_path).items():
        assert name.endswith((".json", ".bin"))
        if name.endswith(".bin"):
            assert set(data) == {0}
            with pytest.raises(pickle.UnpicklingError):
                pickle.load(io.BytesIO(data))
