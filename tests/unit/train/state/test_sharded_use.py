"""Sharded models in a State: what works on several real ranks, and what is refused there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from elasticd.errors import CallError
from elasticd.tensors.fingerprint import comparable, digest, owned_tensors
from elasticd.train.optimizer.nonfinite_gradient import GradientsNotFinite
from elasticd.train.scalars.commit_scalars import CommitScalars
from elasticd.train.state.state import State, core_of
from elasticd.train.world import World
from tests.fixtures.ranks import Cast
from tests.integration.checkpoint_dcp.troupe import Troupe
from tests.unit.train.state.state_case import FakeWatch, world

SIZE = 4


@pytest.fixture(scope="module")
def troupe() -> Iterator[Troupe]:
    """Four ranks for all tests of this module."""
    with Cast() as cast:
        yield Troupe(cast, SIZE)


@contextmanager
def entered(state: State, rank: int, size: int) -> Iterator[FakeWatch]:
    """Be in `train`; these processes go on to other scenes."""
    watch = FakeWatch()
    try:
        core_of(state).rollback()
        core_of(state).enter(world(rank, size), watch)
        yield watch
    finally:
        core_of(state).leave()


def fully(model: torch.nn.Module, mesh: DeviceMesh) -> torch.nn.Module:
    """It is a module still, which its type does not say."""
    made: Any = fully_shard(model, mesh=mesh)
    assert isinstance(made, torch.nn.Module)
    return made


def layers(width: int = 8) -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)
    )


def with_optimizer(
    build: Callable[[World], torch.nn.Module], make: Callable[[Any], torch.optim.Optimizer]
) -> State:
    """A state of both, as the guide has it."""

    def build_optimizer(_: World) -> torch.optim.Optimizer:
        return make([each for each in state.model.parameters() if each.requires_grad])

    state = State(model=build, optimizer=build_optimizer)
    return state


# --- what is refused ----------------------------------------------------------------------------


def fsdp1(rank: int) -> object:
    return FullyShardedDataParallel(layers(), device_id=torch.device("cpu"))


def inside_fsdp1(rank: int) -> object:
    """Its optimizer alone."""
    model = FullyShardedDataParallel(layers(), device_id=torch.device("cpu"))
    return torch.optim.Adam(model.parameters())


def tensor_parallel(rank: int) -> object:
    return parallelize_module(layers(), init_device_mesh("cpu", (SIZE,)), {"0": ColwiseParallel()})


def tensor_parallel_in_fsdp(rank: int) -> object:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    return fully_shard(
        parallelize_module(layers(), mesh["tensor"], {"0": ColwiseParallel()}), mesh=mesh["data"]
    )


def half_a_world(rank: int) -> object:
    """As a stage of a pipeline, or a group of experts, has it."""
    halves = [DeviceMesh("cpu", ranks) for ranks in ([0, 1], [2, 3])]
    return fully(layers(), halves[rank // 2])


def three_dimensions(rank: int) -> object:
    """Two of replicas."""
    model: Any = fully(layers(), init_device_mesh("cpu", (SIZE,)))
    mesh = init_device_mesh("cpu", (2, 2))
    whole = torch.zeros(8, 8)
    model[0].weight = torch.nn.Parameter(distribute_tensor(whole, mesh, [Replicate(), Replicate()]))
    return model


REFUSED: dict[str, tuple[Callable[[int], object], str]] = {
    "FSDP1": (fsdp1, "FullyShardedDataParallel, of whose state each rank has only a part"),
    "optimizer of FSDP1": (inside_fsdp1, "FSDP1 has flattened"),
    "tensor parallel": (tensor_parallel, "0.weight that is sharded by something else"),
    "tensor parallel in FSDP2": (tensor_parallel_in_fsdp, r"0.weight that is spread over a mesh"),
    "half a world": (half_a_world, "spread over 2 of 4 ranks"),
    "two of replicas": (three_dimensions, "0.weight that is spread over a mesh of (2, 2)"),
}


def refuse(rank: int, name: str) -> str:
    state = State(thing=lambda _: REFUSED[name][0](rank))
    try:
        with entered(state, rank, SIZE):
            return "was not refused"
    except CallError as exc:
        return str(exc)


@pytest.mark.parametrize("name", REFUSED)
def test_other_ways_to_shard_are_refused_on_all_ranks(troupe: Troupe, name: str) -> None:
    """One rank's part would be given to another one for the whole."""
    for said in troupe.play(refuse, name, size=SIZE):
        assert said.startswith("State(thing=...)") and REFUSED[name][1] in said, said


# --- what works ---------------------------------------------------------------------------------


def accept(rank: int, shape: tuple[int, ...]) -> int:
    def build(_: World) -> torch.nn.Module:
        names = ("replicas", "shards")[-len(shape) :]
        return fully(layers(), init_device_mesh("cpu", shape, mesh_dim_names=names))

    state = with_optimizer(build, torch.optim.Adam)
    with entered(state, rank, SIZE):
        return len(list(state.model.parameters()))


@pytest.mark.parametrize("shape", [(SIZE,), (2, 2), (1, SIZE), (SIZE, 1)])
def test_fully_shard_over_all_ranks_is_taken(troupe: Troupe, shape: tuple[int, ...]) -> None:
    """With replicas and without."""
    assert troupe.play(accept, shape, size=SIZE) == [4] * SIZE


def train_frozen(rank: int, width: int, frozen: str) -> list[bool]:
    """Fine-tune a part of a sharded model, and go back in the middle of the third step."""

    def build(_: World) -> torch.nn.Module:
        model = layers(width)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not name.startswith(frozen))
        return fully(model, init_device_mesh("cpu", (2,)))

    state = with_optimizer(build, torch.optim.AdamW)
    with entered(state, rank, 2) as watch:
        for _ in range(2):
            state.optimizer.zero_grad()
            state.model(torch.ones(3, width)).square().mean().backward()
            watch.collectives += 1
            state.optimizer.step()
            state.commit()
        with torch.no_grad():
            state.model(
                torch.ones(3, width)
            )  # It leaves the whole of the last group in the module.
    before = [each.to_local().clone() for each in _parameters(state.model)]
    is_frozen = [not each.requires_grad for each in _parameters(state.model)]
    with torch.no_grad():
        for each, is_still in zip(_parameters(state.model), is_frozen, strict=True):
            if is_still:
                each.to_local().add_(1.0)
    core_of(state).rollback()
    after = [each.to_local() for each in _parameters(state.model)]
    same = [torch.equal(a, b) for a, b in zip(before, after, strict=True)]
    return [core_of(state).is_clean, *same]


def _parameters(model: Any) -> list[DTensor]:
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()
    return list(model.parameters())


@pytest.mark.parametrize("width", [8, 256], ids=["small", "large"])
@pytest.mark.parametrize("frozen", ["0", "2", "0.bias"])
def test_sharded_model_may_have_frozen_parameters(troupe: Troupe, width: int, frozen: str) -> None:
    """As with LoRA, or norms that are kept; what is changed in them is put back where it is known
    what they were, and else the rank says that it is not clean."""
    for is_clean, *same in troupe.play(train_frozen, width, frozen, size=2):
        assert len(same) == 4
        assert all(same) or not is_clean
        assert width > 8 or (is_clean and all(same))


# --- replicas that are compared -----------------------------------------------------------------


def fingerprints(rank: int, replicas: int, *, is_odd: bool) -> list[list[str]]:
    """Say what this rank would compare with others after a step: what it all has, and its part."""

    def build(_: World) -> torch.nn.Module:
        shape = (replicas, SIZE // replicas)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
        return fully(layers(), mesh if replicas > 1 else mesh["shard"])

    state = with_optimizer(build, torch.optim.AdamW)
    with entered(state, rank, SIZE):
        state.model(torch.ones(3, 8)).square().mean().backward()
        state.optimizer.step()
        if is_odd and rank == SIZE - 1:
            with torch.no_grad():
                next(iter(state.model.parameters())).to_local().add_(1.0)
        tables = comparable(owned_tensors([state.optimizer]))
        return [["; ".join(table), digest(table)] for table in tables]


def test_parts_that_two_ranks_have_are_compared_and_others_are_not(troupe: Troupe) -> None:
    whole, parts = zip(*troupe.play(fingerprints_of_two, False, size=SIZE), strict=True)
    assert len(set(map(tuple, whole))) == 1 and "(step)" in whole[0][0]
    assert parts[0] == parts[2] and parts[1] == parts[3] and parts[0][0] != parts[1][0]
    _, odd = zip(*troupe.play(fingerprints_of_two, True, size=SIZE), strict=True)
    assert odd[1][0] == odd[3][0] and odd[1][1] != odd[3][1]
    for _, alone in troupe.play(fingerprints_of_one, size=SIZE):
        assert alone[0] == ""


def fingerprints_of_two(rank: int, is_odd: bool) -> list[list[str]]:
    return fingerprints(rank, 2, is_odd=is_odd)


def fingerprints_of_one(rank: int) -> list[list[str]]:
    return fingerprints(rank, 1, is_odd=False)


# --- bad gradients ------------------------------------------------------------------------------


def bad_step(rank: int, value: float, bad_rank: int, on_nan: str) -> str:
    """One rank's part of the gradients has a bad number in it."""

    def build(_: World) -> torch.nn.Module:
        return fully(layers(), init_device_mesh("cpu", (2,)))

    state = with_optimizer(build, torch.optim.SGD)
    core_of(state).on_nan = on_nan
    with entered(state, rank, 2):
        before = [each.to_local().clone() for each in state.model.parameters()]
        state.model(torch.ones(3, 8)).square().mean().backward()
        if rank == bad_rank:
            state.model[0].weight.grad.to_local()[0, 0] = value
        try:
            state.optimizer.step()
        except GradientsNotFinite as exc:
            return str(exc)
        after = [each.to_local() for each in state.model.parameters()]
        is_same = all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        return "left out" if is_same else "made"


@pytest.mark.parametrize("bad_rank", [0, 1, None])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_bad_part_of_a_gradient_is_seen_on_all_ranks(
    troupe: Troupe, value: float, bad_rank: int | None
) -> None:
    """The maximum over ranks of numbers of which one is NaN need not be NaN."""
    skipped = troupe.play(bad_step, value, bad_rank, "skip", size=2)
    assert skipped == ["made" if bad_rank is None else "left out"] * 2
    stopped = troupe.play(bad_step, value, bad_rank, "stop", size=2)
    for rank, said in enumerate(stopped):
        if bad_rank is None:
            assert said == "made"
        elif rank == bad_rank:
            assert "model.0.weight (1 of 4)" in said
        else:
            assert "in the parts of other ranks" in said


def logged(rank: int) -> tuple[bool, float, str]:
    mesh = init_device_mesh("cpu", (2,))
    whole = DTensor.from_local(torch.tensor(0.5), mesh, [Replicate()])
    found = CommitScalars().checked({"loss": whole})["loss"]
    part = DTensor.from_local(torch.tensor(0.5), mesh, [Partial()])
    with pytest.raises(CallError) as refused:
        CommitScalars().checked({"loss": part})
    return isinstance(found, DTensor), float(found), str(refused.value)


def test_number_of_all_ranks_is_summed_up_by_the_script(troupe: Troupe) -> None:
    """To read a part of it is a collective: on the heartbeat's thread it would meet a step's."""
    for is_sharded, value, said in troupe.play(logged, size=2):
        assert (is_sharded, value) == (False, 0.5)
        assert "commit(loss=...) got a DTensor that is not replicated: give its full_ten" in said
