"""docs/supported.md says what works and what is refused; each of its rows is a test here."""

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from elasticd.errors import CallError
from elasticd.tensors.tensor_spec import described
from elasticd.tensors.tree import flatten, unflatten
from elasticd.train.call_check import check_call
from elasticd.train.data.loader import Loader
from elasticd.train.optimizer import unsupported
from elasticd.train.process_group import gloo_group
from elasticd.train.settings import WorkerSettings
from elasticd.train.state.state import State, core_of
from tests.unit.train.data.loader_case import Numbers
from tests.unit.train.optimizer.test_unsupported import CANNOT_TRAVEL, REFUSED, Wrapped, stepped
from tests.unit.train.state.state_case import (
    CASES,
    Case,
    Killer,
    averaged,
    entered,
    facts,
    model,
    plain,
    same,
    scaled,
    train,
)
from tests.unit.train.state.test_optimizer_load import Mixed

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "supported.md"

YES = "yes"
OWN = "with the script's own saving"
_INIT = "`torch.distributed is initialized already`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the page, and what shows that it is true."""

    area: str
    what: str
    in_process: str = YES
    restart: str = YES
    said: str = ""
    check: Callable[[], object]

    @property
    def line(self) -> str:
        return f"| {self.what} | {self.in_process} | {self.restart} | {self.said} |"


# --- ways to show it ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Works:
    """A step that is interrupted ends like another; a new rank goes on like its source; a
    checkpoint has it all."""

    makes: tuple[Callable[[], Case], ...]
    at: str

    def __call__(self) -> None:
        for make in self.makes:
            undisturbed, disturbed, fresh = make(), make(), make()
            train(undisturbed)
            train(disturbed, at=Killer(disturbed[0], self.at, 2))
            assert same(facts(disturbed[0]), facts(undisturbed[0]))
            tree = copy.deepcopy(core_of(disturbed[0]).tree())
            described(tree)
            core_of(fresh[0]).load(tree, core_of(disturbed[0]).position)
            assert same(facts(fresh[0]), facts(undisturbed[0]))
            assert flatten("state", unflatten(tree)).skeleton == tree.skeleton


def works(*makes: Callable[[], Case], at: str = "step") -> Works:
    return Works(makes, at)


def refused(make: Callable[[], object], said: str) -> Callable[[], None]:
    """It is given to State, which says this."""

    def check() -> None:
        with pytest.raises(CallError, match=said):
            State(thing=make())

    return check


def told(call: Callable[[], object], said: str) -> Callable[[], None]:
    """Something else than State says so."""

    def check() -> None:
        with pytest.raises(CallError, match=said):
            call()

    return check


def shown(*tests: str) -> Callable[[], None]:
    """By other tests, on several ranks: FILE::NAME below tests/."""

    def check() -> None:
        for each in tests:
            path, name = each.split("::")
            assert f"def {name}(" in (ROOT / "tests" / path).read_text(), each

    return check


# --- what is said -------------------------------------------------------------------------------


@cache
def sentences() -> tuple[str, ...]:
    """All text of the sources that a script can cause, without docstrings; `...` is a value."""
    found: list[str] = []
    for source in (*ROOT.glob("elasticd/train/**/*.py"), *ROOT.glob("elasticd/tensors/**/*.py")):
        nodes = list(ast.walk(ast.parse(source.read_text())))
        templates = [each for each in nodes if isinstance(each, ast.JoinedStr)]
        apart = {each.value for each in nodes if isinstance(each, ast.Expr)}  # Docstrings.
        apart |= {part for each in templates for part in each.values}
        for each in templates:
            parts = (getattr(part, "value", None) for part in each.values)
            found.append("".join(part if isinstance(part, str) else "..." for part in parts))
        for node in nodes:
            if isinstance(node, ast.Constant) and node not in apart:
                found.append(str(node.value))
    return tuple(found)


def is_said(words: str, heard: list[str]) -> bool:
    """In one of the sentences of the sources, or in an error that was heard."""
    words = re.sub(r"\d+|^state\.x\b", "...", words)
    pattern = re.compile(".*".join(map(re.escape, words.split("..."))), re.DOTALL)
    return any(map(pattern.search, (*sentences(), *heard)))


def optimizer(make: Callable[..., torch.optim.Optimizer], **options: Any) -> Callable[[], Case]:
    return lambda: plain(make, **options)


def matrices(make: Callable[..., torch.optim.Optimizer]) -> Callable[[], Case]:
    def case() -> Case:
        torch.manual_seed(1)
        net = torch.nn.Linear(4, 4, bias=False)
        state = State(model=net, optimizer=make(net.parameters()))

        def step(state: State, at: Callable[[str], None]) -> None:
            state.optimizer.zero_grad()
            state.model(torch.randn(2, 4)).square().mean().backward()
            state.optimizer.step()
            at("step")
            state.commit()

        return state, step

    return case


def compiled() -> Case:
    state, step = plain(torch.optim.SGD, lr=0.1)
    again = State(model=torch.compile(state.model, backend="eager"), optimizer=state.optimizer)
    return again, step


def with_loader(**options: Any) -> Any:
    return Loader(Numbers(8), 2, **options)


def in_backward() -> None:
    net = model()
    state = State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    with entered(state):
        net[3].bias.register_post_accumulate_grad_hook(  # type: ignore[index]
            lambda _: state.optimizer.step()
        )
        stepped(state)


def captured() -> None:
    net = model()
    state = State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    is_capturing = mock.patch.object(torch.cuda, "is_current_stream_capturing", return_value=True)
    with is_capturing, entered(state):
        core_of(state).guard._is_on_gpu = True
        stepped(state)


def initialized() -> None:
    with mock.patch.object(dist, "is_initialized", return_value=True):
        check_call(lambda state, world: None, State(), WorkerSettings.read({}))


def other_device() -> None:
    with mock.patch.object(unsupported, "_DEVICES", ("cuda",)):
        State(model=model())


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(())


def hooked() -> Case:
    """Activations are made again in backward; gradients are clipped as they come."""
    state, _ = plain(torch.optim.SGD, lr=0.1)
    for parameter in state.model.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))

    def step(state: State, at: Callable[[str], None]) -> None:
        state.optimizer.zero_grad()
        loss = checkpoint(state.model, torch.randn(6, 4), use_reentrant=False).square().mean()
        loss.backward()
        at("backward")
        state.optimizer.step()
        at("step")
        state.commit()

    return state, step


def sparse_gradients() -> Case:
    torch.manual_seed(1)
    net = torch.nn.Embedding(5, 3, sparse=True)
    state = State(model=net, optimizer=torch.optim.SparseAdam(net.parameters()))

    def step(state: State, at: Callable[[str], None]) -> None:
        state.optimizer.zero_grad()
        state.model(torch.randint(5, (4,))).square().sum().backward()
        state.optimizer.step()
        at("step")
        state.commit()

    return state, step


def scheduled(make: Callable[[torch.optim.Optimizer], Any]) -> Callable[[], Case]:
    def case() -> Case:
        state, step = plain(torch.optim.SGD, lr=0.1, momentum=0.9)
        own = torch.optim.SGD(state.model.parameters(), lr=0.1, momentum=0.9)
        entries = {"model": state.model, "optimizer": own, "scheduler": make(own)}
        return State(**entries, seen=0, history=[]), step

    return case


def within_another() -> None:
    """Nobody sees which of them the script loops over in which."""
    numbers: dict[str, Any] = {"shuffle": False}
    state = State(outer=Loader(Numbers(4), 2, **numbers), inner=Loader(Numbers(4), 2, **numbers))
    seen: list[tuple[list[int], list[int]]] = []
    for is_over in (True, False):
        with entered(state):
            for outer in state.outer:
                for inner in state.inner:
                    seen.append((outer.tolist(), inner.tolist()))
                    state.commit()
                    if is_over:
                        break
                if is_over:
                    break
    assert seen == [([0, 1], [0, 1]), ([2, 3], [2, 3])]


def unsaved_buffer() -> None:
    """A survivor goes back to it; another rank does not get it."""
    one: Any = torch.nn.Module()
    other: Any = torch.nn.Module()
    for each in (one, other):
        each.register_buffer("seen", torch.zeros(1), persistent=False)
    state, new = State(model=one), State(model=other)
    with entered(state):
        one.seen += 1
        state.commit()
        one.seen += 1
    core_of(state).rollback()
    core_of(new).load(copy.deepcopy(core_of(state).tree()), core_of(state).position)
    assert (one.seen.item(), other.seen.item()) == (1, 0)


def plain_attributes() -> None:
    """Neither put back nor given to another rank; as a buffer it is both."""
    one, other = (torch.nn.BatchNorm1d(2) for _ in range(2))
    pair: Any = one, other
    for each in pair:
        each.register_buffer("warmth", torch.ones(1))
        each.cold, each.momentum = torch.ones(1), 0.5  # No buffers.
    state, new = State(model=one), State(model=other)
    with entered(state):
        for _ in range(2):
            pair[0].warmth.mul_(0.5)
            pair[0].cold.mul_(0.5)
            pair[0].momentum /= 2
            if not state.step:
                state.commit()
    core_of(state).rollback()
    core_of(new).load(copy.deepcopy(core_of(state).tree()), core_of(state).position)
    assert [each.warmth.item() for each in pair] == [0.5, 0.5]
    assert [each.cold.item() for each in pair] == [0.25, 1.0]
    assert [each.momentum for each in pair] == [0.125, 0.5]


class Aside(torch.optim.SGD):
    """Has its momentum in an attribute."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.aside = [torch.zeros_like(each) for each in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for average, each in zip(self.aside, self.param_groups[0]["params"], strict=True):
            each.sub_(average.mul_(0.9).add_(each.grad))


def moments_in_attributes() -> None:
    """Another rank has none, so its next step is another."""
    first, new = matrices(Aside)()[0], matrices(Aside)()[0]
    train((first, matrices(Aside)()[1]), steps=2)
    core_of(new).load(copy.deepcopy(core_of(first).tree()), core_of(first).position)
    assert first.optimizer.aside[0].any()
    assert not new.optimizer.aside[0].any()


def wrapped_ddp() -> object:
    made = DistributedDataParallel.__new__(DistributedDataParallel)
    torch.nn.Module.__init__(made)
    return made


ROWS_OF_DATA: Any = [1, 2]

_TORCH = (
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adamax, torch.optim.NAdam,
    torch.optim.RAdam, torch.optim.Adadelta, torch.optim.Adagrad, torch.optim.RMSprop,
    torch.optim.Rprop, torch.optim.ASGD, torch.optim.Adafactor,
)  # fmt: skip
_MUON = getattr(torch.optim, "Muon", None)
_USE = "unit/train/state/test_sharded_use.py"
_UNSUPPORTED = "unit/train/optimizer/test_unsupported.py"
_LOOPS = "unit/train/data/test_ledger_loops.py"
_EPOCH_END = "unit/train/data/test_epoch_end.py"
_LOOP = "unit/train/introspection/test_own_loop.py"
_KEPT = "unit/train/data/test_kept_batches.py"
_INNER = "unit/train/optimizer/test_inner_optimizer.py"
_GROUPS = "unit/train/state/test_shared_groups.py"
_AGAIN = "unit/train/state/test_train_again.py"
_GRADIENTS = "unit/train/sync/test_value_gradients.py"
_TIED = "unit/train/sync/test_tied_entries.py"
_PART = "`..., of whose state each rank has only a part`"
_SPLIT = "`..., which splits the computation of one sample`"
_POSITION = "`..., whose position is that of one rank`"


_LR = torch.optim.lr_scheduler
SCHEDULERS: tuple[Callable[[torch.optim.Optimizer], Any], ...] = (
    lambda own: _LR.LambdaLR(own, lambda step: 1 / (step + 1)),
    lambda own: _LR.MultiplicativeLR(own, lambda step: 0.9),
    lambda own: _LR.MultiStepLR(own, [1, 3]),
    lambda own: _LR.LinearLR(own, total_iters=4),
    lambda own: _LR.SequentialLR(own, [_LR.ConstantLR(own), _LR.ExponentialLR(own, 0.9)], [2]),
    lambda own: _LR.ChainedScheduler([_LR.PolynomialLR(own), _LR.ExponentialLR(own, 0.9)]),
    lambda own: _LR.CosineAnnealingLR(own, 5),
    lambda own: _LR.CosineAnnealingWarmRestarts(own, 2),
    lambda own: _LR.CyclicLR(own, 0.1, 0.2),
    lambda own: _LR.OneCycleLR(own, 0.1, 20),
    lambda own: torch.optim.swa_utils.SWALR(own, 0.05),
)


def of(name: str) -> Callable[[], None]:
    value, said = REFUSED[name]
    return refused(lambda: value, said)


OPTIMIZERS = (
    Row(area="Optimizers", what="torch's SGD, Adam, AdamW, Adamax, NAdam, RAdam, Adadelta, "
        "Adagrad, RMSprop, Rprop, ASGD, Adafactor",
        check=works(*(optimizer(each, lr=0.01) for each in _TORCH))),
    Row(area="Optimizers", what="Muon (torch 2.9 and later), for matrices",
        check=works(*([matrices(_MUON)] if _MUON else []))),
    Row(area="Optimizers", what="`fused=True`, `foreach=True`",
        check=works(CASES["fused"][0], CASES["foreach"][0])),
    Row(area="Optimizers", what="LBFGS, closures", in_process="yes, a copy at each step",
        check=works(CASES["closure"][0], at="call 2")),
    Row(area="Optimizers", what="several, back to back", in_process="yes, copies in two commits",
        check=shown("unit/train/optimizer/test_step_guard.py::"
                    "test_two_optimizers_back_to_back_cost_no_copy_once_that_is_known")),
    Row(area="Optimizers", what="several with collectives between their steps (a GAN)",
        in_process="yes, a copy at each step", check=works(CASES["two optimizers"][0])),
    Row(area="Optimizers", what="state in types of its own (float32 moments of bfloat16 "
        "parameters, 8 bits)", restart="saved so; torch's `load_state_dict` casts it to the "
        "parameters' type", check=works(matrices(Mixed))),
    Row(area="Optimizers", what="state that the script keeps on the host, with parameters on a GPU",
        in_process="yes; never run on a GPU",
        restart="torch's `load_state_dict` moves it to the GPU", check=shown(
            "unit/train/state/test_optimizer_load.py::"
            "test_restored_state_is_on_the_host_where_it_was_there",
            "unit/train/state/test_optimizer_load.py::"
            "test_state_that_a_script_keeps_on_the_host_stays_there_on_a_new_rank")),
    Row(area="Optimizers", what="an object that wraps an optimizer and saves it",
        check=shown("unit/train/state/test_optimizer_load.py::"
                    "test_survivor_that_goes_back_keeps_its_types_and_counts_as_clean")),
    Row(area="Optimizers", what="one whose step is made of another one's (SAM, Lookahead), both in "
        "State", in_process="yes, a copy at each step", check=shown(
            f"{_INNER}::test_step_within_a_step_is_undone_with_it")),
    Row(area="Optimizers", what="the same, without the inner one, where that keeps something",
        in_process="no", restart=OWN, said="`which keeps a state of its own that no entry`",
        check=shown(f"{_INNER}::test_momentum_that_nobody_saves_is_refused_in_the_first_step")),
    Row(area="Optimizers", what="two with the same parameter groups, and a scheduler of "
        "one of them", restart="with `inner.param_groups = outer.param_groups` after loading",
        check=shown(f"{_GROUPS}::test_rank_that_loads_steps_as_its_source",
                    f"{_GROUPS}::test_script_that_loads_by_itself_has_to_share_them_again")),
    Row(area="Optimizers", what="gradient accumulation", check=works(CASES["accumulation"][0])),
    Row(area="Optimizers", what="one that keeps its moments in attributes, beside its `state`",
        in_process="no: give its class a `state_dict` that has them, or keep them in `state`",
        restart=OWN, said="`which no state_dict holds` (a line)", check=moments_in_attributes),
    Row(area="Optimizers", what="of plain tensors within one step (adversarial examples, latents)",
        in_process="yes; not recovered", check=shown(
            f"{_UNSUPPORTED}::test_optimizer_of_plain_tensors_is_no_business_of_ours")),
    Row(area="Optimizers", what="one that steps within backward (one for each parameter)",
        in_process="no", said="`....step() was called during backward`",
        check=told(in_backward, "called during backward")),
    Row(area="Optimizers", what="one whose parameters are in no entry of the state",
        in_process="no", restart=OWN, said="`that no entry of it holds`",
        check=shown("unit/train/optimizer/test_optimizer_coverage.py::"
                    "test_model_that_was_forgotten_is_missed_before_the_run_begins")),
    Row(area="Optimizers", what="parameters added in training (`add_param_group`)",
        in_process="no", said="`given other parameters in train`", check=shown(
            f"{_AGAIN}::test_parameters_that_are_added_in_training_are_refused_at_the_commit")),
    Row(area="Optimizers", what="writes to parameters, or parts of them, before `optimizer.step()` "
        "or after `commit()` (a clamp, rows that are normalised)",
        in_process="yes, a copy at each step; a write that the script makes once in many steps may "
        "be done twice the first time, and a failure between it and its step loses the state (not "
        "as an epoch begins, with up to 64 MiB of parameters)", check=shown(
            "unit/train/optimizer/test_parameter_change.py::"
            "test_write_to_a_part_of_a_parameter_before_each_step_is_not_done_twice",
            "unit/train/optimizer/test_parameter_change.py::"
            "test_second_write_to_a_part_of_a_parameter_is_seen_however_rare_they_are",
            "unit/train/optimizer/test_epoch_copy.py::test_change_as_an_epoch_begins_is_made_once")),
    Row(area="Optimizers", what="another tensor in the place of a parameter, put there in `train`",
        in_process="no", said="`is another tensor in train`", check=shown(
            f"{_TIED}::test_another_tensor_in_the_place_of_a_trained_parameter_is_refused")),
    Row(area="Optimizers", what="learning rate schedulers, in State",
        check=works(*(scheduled(make) for make in SCHEDULERS), at="schedule")),
    Row(area="Optimizers", what="a learning rate scheduler that is made in `train`",
        in_process="no", said="`scheduler was made in train`", check=shown(
            f"{_AGAIN}::test_scheduler_that_is_made_in_train_is_refused_at_the_commit")),
    Row(area="Optimizers", what="ZeroRedundancyOptimizer, fairscale's OSS, apex's "
        "DistributedFusedAdam", in_process="no", restart=OWN, said=_PART, check=of("ZeRO")),
    Row(area="Optimizers", what="DeepSpeed's and Megatron's distributed optimizers",
        in_process="no", restart=OWN, said=_PART, check=of("Megatron")),
)  # fmt: skip

WRAPPERS = (
    Row(area="Wrappers and meshes", what="DistributedDataParallel, built in `train`",
        check=shown("integration/train/test_loss_parity.py::"
                    "test_killed_workers_leave_no_trace_in_the_loss_curve")),
    Row(area="Wrappers and meshes", what="DistributedDataParallel, DataParallel given to State",
        in_process="no", said="`wrap it inside train`",
        check=refused(wrapped_ddp, "wrap it inside train")),
    Row(area="Wrappers and meshes", what="FSDP2 (`fully_shard`) over all ranks, in a function of "
        "`world`; with replicas too (HSDP)",
        check=shown(f"{_USE}::test_fully_shard_over_all_ranks_is_taken",
                    "integration/train/test_hybrid.py::test_lost_shard_comes_from_a_replica")),
    Row(area="Wrappers and meshes", what="FSDP2 with frozen parameters (LoRA)",
        check=shown(f"{_USE}::test_sharded_model_may_have_frozen_parameters")),
    Row(area="Wrappers and meshes", what="FSDP1, fairscale's ShardedDataParallel, DeepSpeed",
        in_process="no", restart=OWN, said=_PART, check=of("DeepSpeed")),
    Row(area="Wrappers and meshes", what="tensor, sequence and context parallel, FSDP2 beside them",
        in_process="no", restart=OWN, said="`..., and elasticd gives each rank its own samples`",
        check=shown(f"{_USE}::test_other_ways_to_shard_are_refused_on_all_ranks")),
    Row(area="Wrappers and meshes", what="Megatron's parallel layers", in_process="no",
        restart=OWN, said=_SPLIT, check=of("its parts")),
    Row(area="Wrappers and meshes", what="pipeline stages in State", in_process="no", restart=OWN,
        said=_SPLIT, check=of("pipeline")),
    Row(area="Wrappers and meshes", what="a mesh of some of the ranks (experts, stages)",
        in_process="no", restart=OWN, said="`spread over 2 of 4 ranks`",
        check=shown(f"{_USE}::test_other_ways_to_shard_are_refused_on_all_ranks")),
    Row(area="Wrappers and meshes", what="other parameters on each rank under the same names "
        "(local experts, a pipeline cut by hand), gradients that are not reduced (LocalSGD)",
        in_process="no", restart=OWN, said="`the ranks have trained different parameters`",
        check=shown("unit/train/sync/test_replica_check.py::"
                    "test_ranks_that_train_for_themselves_end_the_job_with_what_to_do",
                    "integration/train/test_run.py::"
                    "test_ranks_that_reduce_no_gradients_end_the_job")),
    Row(area="Wrappers and meshes", what="BatchNorm, SyncBatchNorm",
        in_process="yes; not exact at another world size", check=works(CASES["SGD"][0])),
    Row(area="Wrappers and meshes", what="an averaged model (EMA), as a module or an object",
        in_process="yes, a copy at each commit", check=works(averaged, at="average")),
    Row(area="Wrappers and meshes", what="other parameters for an evaluation (an average put in "
        "their place)", in_process="yes, if the script puts them back when it is interrupted "
        "(`with`, `finally`)", check=shown(
            "unit/train/optimizer/test_parameter_change.py::"
            "test_parameters_that_an_evaluation_puts_back_are_those_of_the_commit",
            "unit/train/optimizer/test_parameter_change.py::"
            "test_average_that_is_evaluated_is_not_taken_for_the_state")),
    Row(area="Wrappers and meshes", what="modules whose shapes come with the first batch "
        "(LazyLinear)", in_process="no", restart="yes, after the first batch",
        said="`gets its shape from the first batch`",
        check=refused(lambda: torch.nn.LazyLinear(2), "gets its shape from the first batch")),
    Row(area="Wrappers and meshes", what="names, shapes or types that change in `train` (a buffer "
        "of a forward pass, pruning, `half()`)", in_process="no",
        said="`The structure of the state has changed in train`, within about a second",
        check=shown("unit/train/state/test_structure_change.py::"
                    "test_module_that_is_changed_later_is_refused_by_the_next_look",
                    "unit/train/state/test_structure_change.py::"
                    "test_each_commit_of_a_generation_looks_if_a_look_is_due",
                    "unit/train/state/test_structure_change.py::"
                    "test_what_a_function_of_world_has_built_may_not_change_either")),
    Row(area="Wrappers and meshes", what="`eval()`, `requires_grad`", restart="set by the script",
        check=shown(
            f"{_AGAIN}::test_rank_that_is_interrupted_in_an_evaluation_trains_on_as_it_did",
            f"{_AGAIN}::test_new_rank_freezes_and_evaluates_what_the_others_do")),
    Row(area="Wrappers and meshes", what="numbers and tensors that are plain attributes of a "
        "module",
        in_process="no: register a buffer, or keep the value in State", restart=OWN,
        said="`which no state_dict holds` (a line), if each step makes it of the step before",
        check=plain_attributes),
    Row(area="Wrappers and meshes", what="buffers with `persistent=False` that training changes",
        in_process="with DistributedDataParallel, which sends rank 0's; not in checkpoints",
        restart=OWN, check=unsaved_buffer),
)  # fmt: skip

PRECISION = (
    Row(area="Precision", what="autocast and GradScaler", check=works(scaled)),
    Row(area="Precision", what="`--on-nan stop` and `skip`, sharded gradients too", restart="no",
        check=shown(f"{_USE}::test_bad_part_of_a_gradient_is_seen_on_all_ranks")),
    Row(area="Precision", what="tensors of a class of their own (torchao, NF4)", in_process="no",
        restart=OWN, said="`a kind of tensor whose memory is its own affair`",
        check=refused(lambda: torch.Tensor._make_wrapper_subclass(Wrapped, (2,)), "own affair")),
    Row(area="Precision", what="sparse and quantised tensors in the state", in_process="no",
        restart=OWN, said="`a tensor without ordinary memory`",
        check=refused(lambda: torch.eye(2).to_sparse(), "without ordinary memory")),
    Row(area="Precision", what="sparse gradients", check=works(sparse_gradients)),
)  # fmt: skip

DATA = (
    Row(area="Data", what="a map-style dataset in `elasticd.Loader`",
        restart="yes, with a DistributedSampler", check=shown(
            "unit/train/data/test_loader.py::test_each_sample_counts_once_however_the_world_changes")),
    Row(area="Data", what="several batches for a commit, several commits for a step",
        check=shown(f"{_LOOPS}::"
                    "test_each_sample_is_applied_once_whenever_the_loop_is_interrupted")),
    Row(area="Data", what="a loop that reads ahead", in_process="`Loader(read_ahead=True)`",
        said="`it seems to read ahead`", check=shown(
            f"{_LOOPS}::test_loop_that_reads_ahead_and_has_not_said_so_is_refused")),
    Row(area="Data", what="`itertools.cycle` over a Loader, or over what wraps one (tqdm, "
        "enumerate, map)", in_process="no", said="`itertools.cycle keeps the batches`",
        check=shown(f"{_KEPT}::test_cycle_is_refused_at_the_end_of_its_first_pass",
                    f"{_KEPT}::test_cycle_around_what_wraps_a_loader_is_refused_at_its_first_"
                    "kept_batch")),
    Row(area="Data", what="steps on batches that the script keeps (`list(state.data)`)",
        in_process="no", said="`..., which no Loader gives again after a failure`",
        check=shown(f"{_KEPT}::test_second_step_of_a_pass_that_was_kept_is_refused")),
    Row(area="Data", what="more steps on one batch, or on a cache that was filled while the script "
        "trained on it", in_process="not exact: a failure ends them",
        said="`committed without a new batch`, after 100 steps",
        check=shown(f"{_KEPT}::test_steps_on_one_batch_are_told_once")),
    Row(area="Data", what="IterableDataset, webdataset, MosaicML's streams", in_process="no",
        said="`the dataset is an IterableDataset`",
        check=told(lambda: Loader(Stream(), 2), "is an IterableDataset")),
    Row(area="Data", what="a DataLoader, StatefulDataLoader or stream of Hugging Face in State",
        in_process="no", said=_POSITION, check=lambda: [
            check() for check in (of("torchdata"), of("Hugging Face"),
                                  refused(lambda: DataLoader(ROWS_OF_DATA), "position"))]),
    Row(area="Data", what="a loop over a Loader within a loop over another",
        in_process="not exact: the inner one goes on where it stood", check=within_another),
    Row(area="Data", what="a loop over epochs of the script's own (`for epoch in range(10)`)",
        in_process="no: it begins anew with each world",
        said="`begins anew whenever train is called again`", check=shown(
            f"{_LOOP}::test_own_loop_over_epochs_is_told_once_at_its_second_pass")),
    Row(area="Data", what="`list(state.epochs(n))`: all epochs taken before the first is trained",
        in_process="no", said="`ended without a batch or a step`", check=shown(
            f"{_LOOPS}::test_epochs_that_are_used_up_before_they_are_trained_are_refused")),
    Row(area="Data", what="gradients that one optimizer collects over commits while another one "
        "steps", in_process="not exact: their samples count, and a failure loses them",
        said="`wait for its step`", check=shown(
            f"{_LOOPS}::test_gradients_of_a_second_optimizer_that_wait_over_commits_are_said_once")),
    Row(area="Data", what="gradients that wait over the end of an epoch for the next "
        "one's first step",
        check=shown(f"{_EPOCH_END}::test_failure_at_any_point_changes_nothing")),
    Row(area="Data", what="the same with a commit for each batch, or where parameters are changed "
        "at the end of the epoch, or over more than one end",
        in_process="not exact: their samples count, and a failure before the next step loses them",
        said="`an epoch ended with gradients`",
        check=shown(f"{_EPOCH_END}::test_what_cannot_be_made_again_is_said_once")),
    Row(area="Data", what="a Subset that each process draws for itself (`random_split` without a "
        "seed)", in_process="no", said="`..., of the selection ...`, `a Subset of other samples`",
        check=shown("unit/train/data/test_loader.py::test_position_among_other_samples_is_refused",
                    "unit/train/data/test_loader.py::"
                    "test_ranks_that_have_drawn_other_samples_differ_in_structure")),
    Row(area="Data", what="an own sampler or generator", in_process="no",
        said="`a Loader takes no sampler`", check=told(
            lambda: with_loader(sampler=DistributedSampler(ROWS_OF_DATA, 1, 0)),
            "takes no sampler")),
)  # fmt: skip

COMPILE = (
    Row(area="Compilation and hooks", what="`torch.compile` of the model", check=works(compiled)),
    Row(area="Compilation and hooks", what="`torch.compile` of the DistributedDataParallel around "
        "it, built in `train`", check=shown(
            "unit/train/process_group/test_gloo_group.py::test_compiler_leaves_the_group_alone")),
    Row(area="Compilation and hooks", what="CUDA graphs with the optimizer in them",
        in_process="no", said="`....step() is captured in a CUDA graph`",
        check=told(captured, "captured in a CUDA graph")),
    Row(area="Compilation and hooks", what="hooks on gradients and modules, activation "
        "checkpointing", check=works(hooked)),
    Row(area="Compilation and hooks", what="hooks that `train` registers on what is in State",
        in_process="yes, taken off when `train` is left", check=shown(
            f"{_AGAIN}::test_hook_that_train_registers_is_called_once_in_each_generation")),
)  # fmt: skip

VALUES = (
    Row(area="Values", what="numbers, text, None, dense tensors; lists, tuples, dict, OrderedDict "
        "and Counter of them",
        check=lambda: State(a=[1, (2.0, "x", None)], b={"t": torch.ones(1), 1: True})),
    Row(area="Values", what="one tensor as two values", check=shown(
        "unit/train/test_call_check.py::"
        "test_tensor_that_is_two_values_of_the_state_stays_one")),
    Row(area="Values", what="two values that `train` makes one tensor, or one tensor that it "
        "makes two", check=shown(
            f"{_TIED}::test_values_are_one_tensor_on_a_new_rank_where_they_are_on_its_source")),
    Row(area="Values", what="a value that requires a gradient (a leaf, a Parameter), also one that "
        "`train` makes", restart="as a plain tensor", check=shown(
            f"{_GRADIENTS}::"
            "test_value_of_train_requires_a_gradient_on_a_new_rank_as_on_its_source")),
    Row(area="Values", what="a value with the graph of a backward pass (`state.best = loss`)",
        in_process="no: keep its `detach()`", restart="as a plain tensor",
        said="`still has the graph`",
        check=told(lambda: State(best=torch.ones(1, requires_grad=True) * 2), "detach")),
    Row(area="Values", what="a value in the memory of an optimizer's state (`exp_avg`)",
        in_process="no: keep a clone", said="`is in the memory of`", check=shown(
            "unit/train/state/test_optimizer_memory.py::"
            "test_value_in_the_memory_of_a_moment_is_refused")),
    Row(area="Values", what="one list or dict as two values", in_process="no",
        said="`are one ..., which would be two after a failure`", check=shown(
            "unit/train/test_call_check.py::"
            "test_list_that_is_two_values_of_the_state_is_refused")),
    Row(area="Values", what="other keys than text and whole numbers, sets, bytes, other classes",
        in_process="no", restart="no",
        said="`state.x has the key ...`, `state.x is a ..., which cannot be saved or sent`",
        check=lambda: [refused(partial(copy.copy, value), "has the key|cannot be saved")()
                       for name, (value, _) in CANNOT_TRAVEL.items()
                       if name not in ("sparse", "tensor of a class")]),
)  # fmt: skip

FRAMEWORKS = (
    Row(area="Frameworks", what="Lightning, Hugging Face's Trainer, accelerate", in_process="no",
        restart=OWN, said=_INIT, check=told(initialized, "is initialized already")),
    Row(area="Frameworks", what="torchmetrics in State", in_process="no",
        said="`holds a ..., which keeps its numbers outside of its state_dict`",
        check=of("a metric")),
)  # fmt: skip

DEVICES = (
    Row(area="Devices", what="CPU", check=works(CASES["Adam"][0])),
    Row(area="Devices", what="CUDA", in_process="[never run](gpu.md)",
        restart="[never run](gpu.md)", check=shown(
            "unit/train/device/test_device.py::test_own_gpu_becomes_the_current_one")),
    Row(area="Devices", what="ROCm", in_process="not tried", restart="not tried",
        check=shown("unit/train/device/test_device.py::test_without_a_mask_the_slot_is_the_number")),
    Row(area="Devices", what="XPU, MPS and others", in_process="no", restart="not tried",
        said="`with a tensor on ..., which elasticd does not know`",
        check=told(other_device, "elasticd does not know")),
    Row(area="Devices", what="another transport of Gloo than TCP (GLOO_DEVICE_TRANSPORT)",
        in_process="no", restart="yes, where torch was built with it",
        said="`GLOO_DEVICE_TRANSPORT is ...`",
        check=told(lambda: gloo_group.prepare({"GLOO_DEVICE_TRANSPORT": "UV"}), "over plain TCP")),
)  # fmt: skip

ROWS = (
    *OPTIMIZERS, *WRAPPERS, *PRECISION, *DATA, *COMPILE, *VALUES, *FRAMEWORKS, *DEVICES,
)  # fmt: skip


# --- the tests ----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_row_of_the_page_is_true(row: Row) -> None:
    """What works comes back after an interrupt, what does not is refused with what is said."""
    heard: list[str] = []
    with mock.patch.object(
        CallError, "__init__", lambda exc, *args: heard.append(str(exc)), create=True
    ):
        row.check()
    for words in re.findall(r"`([^`]+)`", row.said):
        assert is_said(words, heard), f"nothing says {words!r}"
    assert row.in_process != "no" or row.said, "nobody would be told"
    assert f"{row.line}\n" in PAGE.read_text(), f"docs/supported.md lacks this line:\n{row.line}"


def test_words_that_nobody_says_are_found() -> None:
    """A docstring is no sentence for a person, and a value may be any."""
    assert is_said("...step() was called during backward", [])
    assert is_said("state.x has the key ...", [])
    assert not is_said("All text of the sources that a script can cause", [])
    assert not is_said("Takes nested state apart", [])
    assert not is_said("was called during forward", ["was called during a backward"])


def test_page_has_no_other_rows() -> None:
    """And has them in their areas."""
    area, found = "", []
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            area = line.removeprefix("## ")
        elif re.match(r"\| (?!what \|)(?!-)", line) and area:
            found.append((area, line))
    assert found == [(row.area, row.line) for row in ROWS]
