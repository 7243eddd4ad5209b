"""GPUs are found by what the kernel shows, and named as CUDA and HIP name them."""

from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.records.ids import NodeId, Nonce, Slot
from elasticd.records.world import Placement, World, WorldWorker
from elasticd_agent.worker_setup.gpus import Gpus, visible_gpus
from elasticd_agent.worker_setup.worker_env import prepared_env, worker_env, worker_files
from tests.unit.control.world_case import SPEC, world


def nvidia(folder: Path, *numbers: int) -> Path:
    dev = folder / "dev"
    dev.mkdir()
    for name in (*(f"nvidia{number}" for number in numbers), "nvidiactl", "nvidia-uvm"):
        (dev / name).touch()
    return dev


def amd(folder: Path, *, given: tuple[int, ...], present: tuple[int, ...]) -> tuple[Path, Path]:
    """A machine with one CPU and some GPUs, of which a container was given some."""
    dev, sys = folder / "dev", folder / "sys"
    (dev / "dri").mkdir(parents=True)
    (dev / "kfd").touch()
    for minor in given:
        (dev / "dri" / f"renderD{minor}").touch()
    nodes = sys / "class/kfd/kfd/topology/nodes"
    for number, minor in enumerate((0, *present)):
        (nodes / str(number)).mkdir(parents=True)
        text = f"cpu_cores_count 0\nsimd_count {304 if minor else 0}\ndrm_render_minor {minor}\n"
        (nodes / str(number) / "properties").write_text(text)
    return dev, sys


def placed(slots: tuple[int, ...], own: int) -> tuple[World, Placement]:
    """A world of one node with workers in these slots, and the place of one of them."""
    one = world(1, "a")
    workers = tuple(WorldWorker(slot=Slot(slot), nonce=Nonce(1)) for slot in slots)
    one = replace(one, nodes=(replace(one.nodes[0], workers=workers),))
    return one, list(one.placements())[own]


def test_gpus_of_a_container_are_numbered_from_0(tmp_path: Path) -> None:
    """Their device nodes have the host's numbers, which CUDA in the container does not know."""
    dev = nvidia(tmp_path, 4, 5, 6, 7)
    assert visible_gpus({}, dev, tmp_path) == Gpus(names=("0", "1", "2", "3"))


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        ("1,0", ("1", "0")),
        ("0,-1,1", ("0",)),
        ("", ()),
        ("GPU-8932f937, GPU-fef8089b", ("GPU-8932f937", "GPU-fef8089b")),
        ("0,1,2", ("0", "1")),
    ],
)
def test_a_mask_is_read_as_cuda_reads_it(tmp_path: Path, mask: str, names: tuple[str, ...]) -> None:
    """It chooses, names and orders; nothing counts from its first unknown entry on."""
    dev = nvidia(tmp_path, 0, 1)
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": mask}, dev, tmp_path).names == names


def test_one_card_cut_into_several_gives_several(tmp_path: Path) -> None:
    """MIG devices have names and no device nodes of their own."""
    dev = nvidia(tmp_path, 0)
    names = ("MIG-a", "MIG-b", "MIG-c")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ",".join(names)}, dev, tmp_path).names == names


def test_amd_gpus_are_those_that_compute_and_were_given_to_us(tmp_path: Path) -> None:
    """The kernel's table shows all of the machine's to every container."""
    dev, sys = amd(tmp_path, given=(129, 130), present=(128, 129, 130, 131))
    assert visible_gpus({}, dev, sys) == Gpus(names=("0", "1"), is_amd=True)
    assert visible_gpus({"HIP_VISIBLE_DEVICES": "1"}, dev, sys).names == ("1",)
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1"}, dev, sys).names == ("1",)
    assert visible_gpus({"ROCR_VISIBLE_DEVICES": "3"}, dev, sys).names == ("0",)


def test_machine_without_a_gpu_has_none(tmp_path: Path) -> None:
    """A mask that names some does not make them."""
    (tmp_path / "dri").mkdir()
    (tmp_path / "dri" / "renderD128").touch()  # Of a display.
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}, tmp_path, tmp_path) == Gpus()


FOUR = Gpus(names=("0", "1", "2", "3"))


@pytest.mark.parametrize("slot", [0, 3])
def test_prepared_worker_sees_the_gpu_of_its_slot(tmp_path: Path, slot: int) -> None:
    """And learns its slot and how many GPUs its agent counted."""
    env = prepared_env(
        SPEC, NodeId("a"), Slot(slot), tmp_path, base={}, interface="eth0", gpus=FOUR
    )
    seen = {name: env.get(name) for name in ("CUDA_VISIBLE_DEVICES", "ELASTICD_SLOT")}
    assert seen == {"CUDA_VISIBLE_DEVICES": str(slot), "ELASTICD_SLOT": str(slot)}
    assert env["LOCAL_RANK"] == "0", "of those that it sees; scripts read it before they train"
    assert env["ELASTICD_GPUS"] == "4" and "HIP_VISIBLE_DEVICES" not in env
    assert env["NCCL_SOCKET_IFNAME"] == "=eth0" and env["GLOO_SOCKET_IFNAME"] == "eth0"


def test_worker_of_a_world_sees_the_gpus_of_its_slots(tmp_path: Path) -> None:
    """Another job may hold the first ones of the node; LOCAL_RANK counts from 0 all the same."""
    one, placement = placed(slots=(1, 3), own=1)
    files = worker_files(tmp_path, SPEC.name, one.generation, placement.rank)
    env = worker_env(
        SPEC,
        one,
        placement,
        files,
        base={"NCCL_SOCKET_IFNAME": "ib"},
        interface="eth0",
        gpus=Gpus(names=("0", "1", "2", "3"), is_amd=True),
    )
    assert env["CUDA_VISIBLE_DEVICES"] == env["HIP_VISIBLE_DEVICES"] == "1,3"
    assert (env["LOCAL_RANK"], env["ELASTICD_SLOT"]) == ("1", "3")
    assert env["NCCL_SOCKET_IFNAME"] == "ib", "who set it knows better"


def test_without_gpus_no_mask_is_set_and_the_slot_is_told(tmp_path: Path) -> None:
    """Some machines have GPUs that cannot be counted from outside (WSL)."""
    env = prepared_env(SPEC, NodeId("a"), Slot(1), tmp_path, base={}, interface="", gpus=Gpus())
    assert env["ELASTICD_SLOT"] == env["LOCAL_RANK"] == "1"
    assert not {"CUDA_VISIBLE_DEVICES", "ELASTICD_GPUS", "NCCL_SOCKET_IFNAME"} & set(env)


@pytest.mark.parametrize("mask", ["", "2,3"])
def test_mask_that_a_job_brings_is_kept(tmp_path: Path, mask: str) -> None:
    """`--env CUDA_VISIBLE_DEVICES=` trains on the CPU of machines with GPUs."""
    spec = replace(SPEC, env={"CUDA_VISIBLE_DEVICES": mask})
    env = prepared_env(spec, NodeId("a"), Slot(1), tmp_path, base={}, interface="", gpus=FOUR)
    assert env["CUDA_VISIBLE_DEVICES"] == mask and env["ELASTICD_SLOT"] == "1"
    assert "ELASTICD_GPUS" not in env, "the agent has not chosen, so the slot is the number"
    assert env["LOCAL_RANK"] == "1"
