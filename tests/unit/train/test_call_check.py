"""What `elasticd.run` refuses before it begins, and what it does first."""

import copy
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import elasticd
from elasticd.errors import CallError, EnvironmentProblem
from elasticd.train import run as run_module
from elasticd.train.call_check import check_call, check_device
from elasticd.train.process_group import gloo_group, nccl
from elasticd.train.settings import WorkerSettings
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import entered


def model_on(*devices: str) -> Any:
    """Stands for a module with a parameter on each."""
    tensors = [SimpleNamespace(device=torch.device(device)) for device in devices]
    return SimpleNamespace(parameters=lambda: tensors[:1], buffers=lambda: tensors[1:])


def test_model_on_another_workers_gpu_is_refused() -> None:
    """NCCL would find two ranks on one card, and later."""
    own = torch.device("cuda", 1)
    check_device([model_on("cuda:1", "cpu"), model_on("cpu")], own)
    with pytest.raises(CallError, match=r"on cuda:0, and this worker's device is cuda:1.*\.to\("):
        check_device([model_on("cuda:1", "cuda:0")], own)
    with pytest.raises(CallError, match="worker's device is cpu"):
        check_device([model_on("cuda:0")], torch.device("cpu"))


def test_device_and_environment_are_set_before_anything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the session or the group asks of CUDA speaks of the worker's own GPU then."""
    done: list[str] = []
    own = torch.device("cuda", 3)

    class Session:
        def __init__(self) -> None:
            done.append("session")
            raise InterruptedError

    def use_device() -> torch.device:
        done.append("device")
        return own

    for name in ("ELASTICD_AGENT", "RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(run_module, "use_device", use_device)
    monkeypatch.setattr(nccl, "prepare", lambda env: done.append("environment"))
    monkeypatch.setenv("TORCH_GLOO_LAZY_INIT", "1")
    monkeypatch.setattr(run_module, "SingleProcess", Session)
    with pytest.raises(InterruptedError):
        elasticd.run(lambda state, world: None, elasticd.State(model=torch.nn.Linear(1, 1)))
    assert done == ["device", "environment", "session"]
    assert os.environ["TORCH_GLOO_LAZY_INIT"] == "0", "Gloo is in a group of GPUs too"


@pytest.mark.parametrize("transport", ["UV", "TCP_TLS", ""])
def test_transport_of_gloo_that_no_abort_reaches_is_refused(transport: str) -> None:
    """torch for CPUs has none of them: each world broke as it was formed, a hundred times."""
    with pytest.raises(EnvironmentProblem, match=f"GLOO_DEVICE_TRANSPORT is '{transport}'.*unset"):
        gloo_group.prepare({"GLOO_DEVICE_TRANSPORT": transport})
    gloo_group.prepare({"GLOO_DEVICE_TRANSPORT": "TCP"})


def test_train_that_would_return_at_once_is_refused() -> None:
    """Called like a function it makes a generator or a coroutine, and the job would succeed."""

    def steps(state: Any, world: Any) -> Any:
        yield 1

    async def later(state: Any, world: Any) -> None:
        pass

    for train in (steps, later):
        with pytest.raises(
            CallError, match=rf"{train.__name__}.*define it as an ordinary function"
        ):
            check_call(train, State(), WorkerSettings.read({}))


def test_list_that_is_two_values_of_the_state_is_refused() -> None:
    """What is appended to the one would be in the other, until a rank was lost."""
    shared: list[Any] = [1]
    for values, places in (
        ({"a": shared, "b": shared}, r"state\.b and state\.a are one list"),
        ({"a": shared, "b": {"k": (0, shared)}}, r"state\.b\.k\[1\] and state\.a are one list"),
        ({"rows": [shared] * 2}, r"state\.rows\[1\] and state\.rows\[0\] are one list"),
    ):
        with pytest.raises(CallError, match=places):
            check_call(lambda state, world: None, State(**values), WorkerSettings.read({}))
    alike: list[Any] = [1]
    check_call(
        lambda state, world: None, State(a=shared, b=alike, c=(1,), d=(1,)), WorkerSettings.read({})
    )


def test_tensor_that_is_two_values_of_the_state_stays_one() -> None:
    def made() -> State:
        tensor = torch.zeros(2)
        return State(a=tensor, b=tensor, c=[tensor])

    state, other = made(), made()
    check_call(lambda state, world: None, state, WorkerSettings.read({}))
    with entered(state):
        state.a.add_(1)
        state.commit()
        state.a.add_(1)
    core_of(state).rollback()
    core_of(other).load(copy.deepcopy(core_of(state).tree()), core_of(state).position)
    for each in (state, other):
        assert each.a is each.b is each.c[0]
        assert each.a.tolist() == [1, 1]


def test_entry_without_a_name_is_refused_with_what_to_write() -> None:
    model: Any = torch.nn.Linear(1, 1)
    with pytest.raises(CallError, match=r"by name: State\(model=model, optimizer=optimizer\)\.$"):
        State(model, torch.optim.SGD(model.parameters(), lr=0.1))  # type: ignore[arg-type]


def test_number_without_a_name_is_refused_and_commits_nothing() -> None:
    state: Any = State(model=torch.nn.Linear(1, 1))
    with entered(state):
        with pytest.raises(CallError, match=r"by name: state\.commit\(loss=loss\)\.$"):
            state.commit(torch.ones(1))
        assert state.step == 0
        state.commit(loss=torch.ones(1))
        assert state.step == 1


def test_run_without_a_state_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        CallError, match=r"an elasticd\.State second.*elasticd\.run\(train, elasticd\.State\("
    ):
        elasticd.run(lambda state, world: None)


def test_array_of_numpy_is_refused_with_how_to_make_a_tensor_of_it() -> None:
    """Wherever it stands: as a value, in one, or assigned."""
    array = np.zeros(3)
    said = r"is an array of numpy, .*torch\.from_numpy\(array\)\.$"
    with pytest.raises(CallError, match=rf"^State\(x=\.\.\.\) {said}"):
        State(x=array)
    with pytest.raises(CallError, match=rf"^State\(x=\.\.\.\)\.rows\[0\] {said}"):
        State(x={"rows": [array]})
    state = State(x=torch.from_numpy(array))
    with pytest.raises(CallError, match=rf"^state\.x {said}"):
        state.x = array
    built = State(x=lambda world: array)
    with pytest.raises(CallError, match="build it inside train"), entered(built):
        pass
