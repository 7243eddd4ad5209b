"""Which functions no interrupt leaves in the middle, tried at every instruction."""

import inspect
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
import torch

from elasticd.train.interrupt import may_be_left, uninterruptible
from elasticd.train.optimizer.step_guard import StepGuard
from elasticd.train.session.agent_session import AgentSession
from elasticd.train.state.state import State, core_of
from elasticd.train.state.state_core import StateCore
from tests.unit.train.state.state_case import entered, model

Look = Callable[[FrameType], None]


@contextmanager
def each_instruction(code: CodeType, look: Look) -> Iterator[None]:
    """Call `look` before each instruction of a function with this code and of all that it calls.

    What `look` raises is raised there, as the handler of a signal or another thread would.
    """

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not code and not _is_inside(frame):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            look(frame)
        return trace

    def _is_inside(frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code is code:
                return True
            frame = frame.f_back
        return False

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def ready() -> State:
    net = model()
    return State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), seen=0)


def stepped(state: State) -> None:
    state.optimizer.zero_grad()
    state.model(torch.ones(6, 4)).sum().backward()
    state.optimizer.step()


def committed(state: State) -> None:
    stepped(state)
    state.commit()


def code_of(function: Any) -> CodeType:
    code = inspect.unwrap(function).__code__
    assert isinstance(code, CodeType)
    return code


def paused(state: State) -> None:
    with state.pause("evaluation"):
        assert may_be_left(sys._getframe())


def passed(state: State) -> None:
    for _ in state.epochs(1):
        assert may_be_left(sys._getframe())
        committed(state)


REGIONS: dict[str, tuple[Callable[[State], None], CodeType]] = {
    "commit": (committed, code_of(StateCore.commit)),
    "epochs": (passed, code_of(StateCore._passes)),
    "pause": (paused, code_of(StateCore.pause)),
    "before an optimizer's step": (committed, code_of(StepGuard._before)),
    "after an optimizer's step": (committed, code_of(StepGuard._after)),
}


@pytest.mark.parametrize("name", REGIONS)
def test_region_may_be_left_at_no_instruction(name: str) -> None:
    """Nor may what it calls; before it and after it the script may be left."""
    call, code = REGIONS[name]
    first, state = ready(), ready()
    seen: list[bool] = []
    with entered(first):
        committed(first)  # It imports much of torch, which is not looked at.
    with entered(state):
        for _ in range(2):
            with each_instruction(code, lambda frame: seen.append(may_be_left(frame))):
                call(state)
            assert may_be_left(sys._getframe())
    assert len(seen) > 20
    assert not any(seen)


@pytest.mark.parametrize("name", ["__enter__", "__exit__"])
@pytest.mark.parametrize(
    "mode",
    [
        lambda: torch.autocast("cpu", torch.bfloat16),
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
    ],
)
def test_mode_of_torch_is_not_left_half_switched(mode: Callable[[], Any], name: str) -> None:
    """Its own block may be left."""
    seen: list[bool] = []
    code = code_of(getattr(type(mode()), name))
    with each_instruction(code, lambda frame: seen.append(may_be_left(frame))), mode():
        assert may_be_left(sys._getframe())
    assert seen
    assert not any(seen)


def test_agreement_on_the_last_step_may_be_left_at_no_instruction() -> None:
    """`check` holds the lock that the hearing thread wants."""
    seen: list[bool] = []
    session = AgentSession.__new__(AgentSession)
    session._wanted = None
    with each_instruction(
        code_of(AgentSession.check), lambda frame: seen.append(may_be_left(frame))
    ):
        session.check(1)
    assert seen
    assert not any(seen)


def test_foreign_exception_at_any_instruction_leaves_no_region_open() -> None:
    """Ctrl-C, or PyThreadState_SetAsyncExc by a notebook: the next world can be interrupted."""
    held: list[int] = []

    @uninterruptible
    def region() -> int:
        held.append(1)
        try:
            return sum(held)
        finally:
            held.clear()

    _raise_at_each_instruction(region)


def test_foreign_exception_at_any_instruction_of_a_commit_leaves_no_region_open() -> None:
    state = ready()
    with entered(state):
        committed(state)

        def commit() -> None:
            try:
                state.commit()
            except KeyboardInterrupt:
                assert may_be_left(sys._getframe())
                core_of(state).guard.reset()  # As if this rank had got another's state.
                torch.set_grad_enabled(True)  # As `run` does.
                raise

        points = _raise_at_each_instruction(commit, code_of(StateCore.commit))
    assert points > 50


def _raise_at_each_instruction(call: Callable[[], object], code: CodeType | None = None) -> int:
    """Raise at the first instruction, at the second, ..., until there are no more; how many."""
    code = code or code_of(call)
    point = 0
    while True:
        count = 0

        def look(frame: FrameType, last: int = point) -> None:
            nonlocal count
            count += frame.f_code is code
            if count > last:
                raise KeyboardInterrupt

        try:
            with each_instruction(code, look):
                call()
        except KeyboardInterrupt:
            assert may_be_left(sys._getframe())
            point += 1
        else:
            return point


def test_body_of_a_loop_and_of_a_with_may_be_left() -> None:
    """Only while a generator itself runs is its frame on the stack."""
    state = ready()
    with entered(state):
        paused(state)
        passed(state)


def test_mark_moves_with_the_function_and_stays_with_no_file() -> None:
    """The same two functions in two files: only the marked one is kept whole, in both."""
    source = "def whole(look):\n    look()\n\ndef other(look):\n    look()\n"
    for name in ("one.py", "another.py", inspect.getfile(State)):
        space: dict[str, FunctionType] = {}
        exec(compile("\n" * 10_000 + source, name, "exec"), space)
        seen: list[bool] = []
        marked = uninterruptible(space["whole"])
        for function in (marked, space["other"]):
            function(lambda seen=seen: seen.append(may_be_left(sys._getframe())))
        assert seen == [False, True]


def test_function_that_torch_compile_translated_is_still_whole() -> None:
    """Dynamo runs other code for it, and one more function for each break of the graph."""
    seen: list[bool] = []

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def look() -> None:
        frame: FrameType | None = sys._getframe().f_back
        seen.append(may_be_left(frame))

    @uninterruptible
    def region(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor + 1
        look()
        tensor = tensor * 2
        look()
        return tensor

    def plain(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor + 1
        look()
        return tensor * 2

    ones = torch.ones(2)
    assert torch.compile(region, backend="eager")(ones).tolist() == [4.0, 4.0]
    assert seen == [False, False]
    assert torch.compile(plain, backend="eager")(ones).tolist() == [4.0, 4.0]
    assert seen == [False, False, True]


def test_mark_is_the_function_itself() -> None:
    """So a call of it costs what it cost before."""

    def plain() -> None:
        pass

    assert uninterruptible(plain) is plain


def test_generator_is_whole_only_while_it_runs() -> None:
    seen: list[bool] = []

    @uninterruptible
    def numbers() -> Generator[int, None, None]:
        seen.append(may_be_left(sys._getframe()))
        yield 1
        seen.append(may_be_left(sys._getframe()))

    for _ in numbers():
        seen.append(may_be_left(sys._getframe()))
    assert seen == [False, True, False]
