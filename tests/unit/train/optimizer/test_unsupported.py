"""What in-process mode cannot recover is refused where it is given, with what to do instead."""

from collections import OrderedDict, defaultdict
from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.call_check import check_call
from elasticd.train.optimizer import unsupported
from elasticd.train.settings import WorkerSettings
from elasticd.train.state.entry import kind_of
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import entered, model


def of(package: str, name: str, *bases: type, **attributes: Any) -> Any:
    """A class of this name from this package, which need not be there."""
    made = type(name, bases or (object,), {"__module__": f"{package}.some", **attributes})
    made.state_dict = lambda self: {}  # type: ignore[attr-defined]
    made.load_state_dict = lambda self, _: None  # type: ignore[attr-defined]
    return made


class Inside(torch.nn.Module):
    """A model with a part that is not the script's own."""

    def __init__(self, part: torch.nn.Module) -> None:
        super().__init__()
        self.part = part


def optimizer_of(package: str, name: str) -> torch.optim.Optimizer:
    made = of(package, name, torch.optim.SGD)
    return made([torch.nn.Parameter(torch.zeros(1))], lr=0.1)  # type: ignore[no-any-return]


Module = torch.nn.Module
REFUSED: dict[str, tuple[Any, str]] = {
    "DeepSpeed": (of("deepspeed", "DeepSpeedEngine", Module)(), "is a DeepSpeedEngine, of whose"),
    "fairscale": (of("fairscale", "ShardedDataParallel", Module)(), "fully_shard"),
    "ZeRO": (optimizer_of("torch", "ZeroRedundancyOptimizer"), "use the optimizer that it wraps"),
    "ZeRO of DeepSpeed": (
        optimizer_of("deepspeed", "DeepSpeedZeroOptimizer_Stage3"),
        "only a part",
    ),
    "Megatron": (of("megatron", "DistributedOptimizer")(), "leave out elasticd.run"),
    "its parts": (
        Inside(of("megatron", "ColumnParallelLinear", Module)()),
        "holds a ColumnParallelLinear, which splits the computation",
    ),
    "a subclass": (of("mine", "Mine", of("deepspeed", "DeepSpeedEngine", Module))(), "only a part"),
    "apex": (optimizer_of("apex", "DistributedFusedAdam"), "FusedAdam"),
    "pipeline": (of("torch", "PipelineStage", of("torch", "_PipelineStageBase"))(), "splits"),
    "torchdata": (of("torchdata", "StatefulDataLoader")(), "position is that of one rank"),
    "Hugging Face": (of("datasets", "IterableDataset")(), "elasticd.Loader"),
    "another loader": (
        of("mine", "Batches", __iter__=lambda self: iter(()), dataset=[1])(),
        "position is that of one rank",
    ),
    "a metric": (Inside(of("torchmetrics", "Metric", Module)()), "holds a Metric, which keeps its"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_class_that_would_train_wrongly_is_refused_by_its_name(name: str) -> None:
    """None of these packages needs to be installed for that."""
    value, sentence = REFUSED[name]
    with pytest.raises(CallError, match=rf"^State\(thing=\.\.\.\) .*({sentence})"):
        State(thing=value)
    with pytest.raises(CallError, match=sentence):
        kind_of("thing", value, is_built=True)


@pytest.mark.parametrize(
    "value",
    [
        of("mine", "Metric", Module)(),
        of("mine", "IterableDataset")(),
        of("mine", "Buffer", __iter__=lambda self: iter(()))(),
        of("apex", "FusedAdam")(),
    ],
)
def test_class_that_only_sounds_alike_is_taken(value: Any) -> None:
    """The script's own metric saves its numbers, if it is written so."""
    kind_of("thing", value)


def test_parameters_that_fsdp1_flattened_are_refused_whoever_holds_them() -> None:
    """Its optimizer, too, has a part of each."""
    net = model()
    for parameter in net.parameters():
        vars(parameter)["_fsdp_flattened"] = True
    for value in (net, torch.optim.SGD(net.parameters(), lr=0.1)):
        with pytest.raises(CallError, match="FSDP1 has flattened and cut"):
            State(thing=value)


def test_other_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training would wait for no kernel of theirs before a step."""
    monkeypatch.setattr(unsupported, "_DEVICES", ("cuda",))
    with pytest.raises(CallError, match="with a tensor on cpu, which elasticd does not know"):
        State(model=model())


@pytest.mark.parametrize(
    "part", [torch.nn.LazyLinear(2), torch.nn.LazyBatchNorm1d()], ids=["parameter", "buffer"]
)
def test_module_whose_shapes_are_not_known_yet_is_refused(part: torch.nn.Module) -> None:
    """A new process would have no place for what the others have made of it."""
    with pytest.raises(CallError, match="gets its shape from the first batch"):
        State(model=torch.nn.Sequential(part))
    part(torch.zeros(2, 3))
    State(model=torch.nn.Sequential(part))


# --- steps --------------------------------------------------------------------------------------


def stepped(state: State) -> None:
    state.model(torch.randn(4, 4)).square().mean().backward()
    state.optimizer.step()


def ready() -> State:
    net = model()
    return State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))


@pytest.mark.parametrize("is_on_gpu", [False, True])
def test_step_that_is_captured_in_a_graph_is_refused(
    monkeypatch: pytest.MonkeyPatch, is_on_gpu: bool
) -> None:
    """A replay runs no hook; without a GPU nothing of CUDA is asked."""
    asked: list[int] = []

    def is_capturing() -> bool:
        asked.append(1)
        return True

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", is_capturing)
    state = ready()
    with entered(state):
        core_of(state).guard._is_on_gpu = is_on_gpu
        if not is_on_gpu:
            stepped(state)
            assert not asked
            return
        with pytest.raises(CallError, match=r"SGD\.step\(\) is captured in a CUDA graph"):
            stepped(state)
        assert not core_of(state).is_dirty


def test_step_within_backward_is_refused() -> None:
    """One optimizer for each parameter: some would be ahead of sums that are not made yet."""
    state = ready()
    weight = next(state.model.parameters())
    with entered(state):
        hook = weight.register_post_accumulate_grad_hook(lambda _: state.optimizer.step())
        with pytest.raises(CallError, match="called during backward"):
            stepped(state)
        assert not core_of(state).is_dirty
        hook.remove()


def test_optimizer_of_plain_tensors_is_no_business_of_ours() -> None:
    """An adversarial example, or a latent vector, lives within one step."""
    state = ready()
    with entered(state):
        delta = torch.zeros(4, requires_grad=True)
        attack = torch.optim.SGD([delta], lr=0.1)
        (-state.model(torch.randn(4, 4) + delta).square().mean()).backward()
        attack.step()
        assert delta.abs().sum() > 0 and not core_of(state).is_dirty
        stepped(state)
        state.commit()
        other = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
        with pytest.raises(CallError, match=r"give it to State\(\.\.\.\).*plain tensors"):
            other.step()
        for known in (state.model[0].weight, state.model[1].weight):
            with pytest.raises(CallError, match="give it to State"):
                torch.optim.SGD([known], lr=0.1).step()


# --- values that cannot travel ------------------------------------------------------------------


class Wrapped(torch.Tensor):
    """A tensor whose numbers are elsewhere, as quantised ones of libraries are."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError


CANNOT_TRAVEL: dict[str, tuple[Any, str]] = {
    "tuple for a key": ({"scores": {(1, 2): 3}}, r"state\.best\.scores has the key \(1, 2\)"),
    "number for a key": ({3.5: 1}, r"state\.best has the key 3\.5"),
    "defaultdict": ([defaultdict(int)], r"state\.best\[0\] is a collections\.defaultdict"),
    "set": ({"seen": {1}}, r"state\.best\.seen is a builtins\.set"),
    "bytes": ([b"x"], r"state\.best\[0\] is a builtins\.bytes"),
    "tuple of names": ([torch.max(torch.eye(2), 0)], r"state\.best\[0\] is a torch\.return_types"),
    "sparse": (torch.eye(2).to_sparse(), r"state\.best is a tensor without ordinary memory"),
    "tensor of a class": (
        torch.Tensor._make_wrapper_subclass(Wrapped, (2,)),
        r"state\.best is a Wrapped, a kind of tensor",
    ),
}


@pytest.mark.parametrize("name", CANNOT_TRAVEL)
def test_value_that_cannot_travel_is_refused_as_it_is_assigned(name: str) -> None:
    """At the next failure it would take all that have it with it."""
    value, sentence = CANNOT_TRAVEL[name]
    state = State(best=None)
    with pytest.raises(CallError, match=sentence):
        state.best = value
    assert state.best is None
    with pytest.raises(CallError, match=sentence.replace(r"state\.best", r"State\(best=\.\.\.\)")):
        State(best=value)


@pytest.mark.parametrize("name", CANNOT_TRAVEL)
def test_value_that_is_put_into_another_is_refused_at_the_commit(name: str) -> None:
    """Nobody sees it come; the commit is not made."""
    value, sentence = CANNOT_TRAVEL[name]
    state = State(kept={})
    with entered(state):
        state.commit()
        state.kept["best"] = value
        with pytest.raises(CallError, match=sentence.replace("state", r"state\.kept")):
            state.commit()
        assert state.step == 1
        del state.kept["best"]
        state.commit()
        assert state.step == 2


def test_optimizer_state_that_cannot_travel_is_refused_at_the_first_commit() -> None:
    """It comes into being with the first step."""

    class Odd(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter]["seen"] = {1, 2}
            return super().step(closure)

    net = torch.nn.Linear(4, 1)
    state = State(model=net, optimizer=Odd(net.parameters(), lr=0.1))
    with entered(state):
        stepped_once = net(torch.ones(1, 4)).sum()
        stepped_once.backward()
        state.optimizer.step()
        with pytest.raises(CallError, match=r"optimizer\.state\.0\.seen is a builtins\.set"):
            state.commit()


def test_sparse_buffer_is_refused_with_its_name_before_the_run_begins() -> None:
    """torch has no word for it but that it has no bytes."""
    net = torch.nn.Linear(1, 1)
    net.register_buffer("graph", torch.eye(3).to_sparse())
    state = State(model=net)
    with pytest.raises(CallError, match=r"state\.model\.graph is a tensor without ordinary memory"):
        check_call(lambda state, world: None, state, WorkerSettings.read({}))
    with pytest.raises(CallError, match=r"state\.model\.graph"), entered(state):
        pass


def test_module_state_within_another_state_keeps_the_versions_of_its_layers() -> None:
    """BatchNorm looks at them when it is loaded."""

    class Holder:
        def __init__(self) -> None:
            self.inner = torch.nn.BatchNorm1d(2)
            self.loaded: Any = None

        def state_dict(self) -> Any:
            return {"inner": self.inner.state_dict()}

        def load_state_dict(self, state: Any) -> None:
            self.loaded = state["inner"]
            self.inner.load_state_dict(state["inner"])

    holder = Holder()
    state = State(holder=holder)
    with entered(state):
        state.commit()
        mean = holder.inner.running_mean
        assert mean is not None
        mean.add_(1)
    core_of(state).rollback()
    assert mean.tolist() == [0, 0]
    assert type(holder.loaded) is OrderedDict
    assert vars(holder.loaded)["_metadata"][""]["version"] == 2
