"""Tensors that have parts of their memory in common have them in common on a new rank, too."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import entered, facts, same
from tests.unit.train.sync.test_tied_entries import MUCH, heal, trained

Made = Callable[[], State]
Change = Callable[[State], None]


def apart() -> State:
    return State(buf=torch.zeros(MUCH), part=torch.ones(3))


def empty() -> State:
    return State(buf=torch.zeros(MUCH), part=None)


def nested() -> State:
    return State(buf=torch.zeros(MUCH), part=[None, {"of": (None,)}])


def first_part() -> State:
    buffer = torch.zeros(MUCH)
    return State(buf=buffer, part=buffer[:3])


def one() -> State:
    buffer = torch.zeros(3)
    return State(buf=buffer, part=buffer)


def take_part(state: State) -> None:
    state.buf.add_(1)
    state.part = state.buf[:3]


def take_parts(state: State) -> None:
    state.buf.add_(1)
    state.part = [state.buf[2:5], {"of": (state.buf[4:9],)}]


def take_other_part(state: State) -> None:
    state.buf.add_(1)
    state.part = state.buf[1:4]


def take_every_second(state: State) -> None:
    state.part = state.buf[:6:2]


def take_matrix(state: State) -> None:
    state.part = state.buf[:12].view(3, 4).t()


def take_windows(state: State) -> None:
    state.part = state.buf[:6].unfold(0, 3, 1)


def take_bytes(state: State) -> None:
    state.part = state.buf[1:4].view(torch.uint8)


def take_complex(state: State) -> None:
    """It begins at a multiple of eight bytes, and what it lies in need not."""
    whole = torch.arange(10.0)
    state.buf, state.part = whole[1:], torch.view_as_complex(whole[2:6].view(2, 2))


def take_expanded(state: State) -> None:
    state.part = state.buf[:3].expand(2, 3)


def take_two_of_one(state: State) -> None:
    whole = torch.arange(4.0)
    state.buf, state.part = whole[:3], whole[1:]


def take_own(state: State) -> None:
    state.part = torch.full((3,), 7.0)


@pytest.mark.parametrize(
    ("made", "change"),
    [
        (apart, take_part),
        (empty, take_part),
        (nested, take_parts),
        (first_part, take_part),
        (first_part, take_other_part),
        (first_part, take_own),
        (one, take_two_of_one),
        (empty, take_every_second),
        (empty, take_matrix),
        (empty, take_windows),
        (empty, take_bytes),
        (empty, take_complex),
        (empty, take_expanded),
        (apart, take_expanded),
        (empty, take_two_of_one),
    ],
)
def test_what_is_written_into_a_part_is_seen_in_the_whole_on_a_new_rank(
    made: Made, change: Change
) -> None:
    source, target = trained(made, change), made()
    heal(source, target)
    assert same(facts(target), facts(source))
    write_alike(source, target)
    again = made()
    heal(target, again)
    assert same(facts(again), facts(source))
    write_alike(source, again)


def write_alike(*states: State) -> None:
    for state in states:
        with entered(state):
            state.buf[1] += 2
            part = state.part[1]["of"][0] if isinstance(state.part, list) else state.part
            part[0] += 5
            state.commit()
    first, *others = map(facts, states)
    assert all(same(first, each) for each in others)


class Queue(torch.nn.Module):
    """A buffer that is a part of another one from some step on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("all", torch.zeros(MUCH))
        self.register_buffer("head", torch.zeros(3))
        self.linear = torch.nn.Linear(3, 1)


def with_queue() -> State:
    torch.manual_seed(0)
    net = Queue()
    return State(model=net, row=None, optimizer=torch.optim.SGD(net.parameters(), 0.1))


def bind_buffer(state: State) -> None:
    state.model.head = state.model.all[:3]


def bind_row_of_weight(state: State) -> None:
    state.row = state.model.linear.weight.detach()[0, 1:]


@pytest.mark.parametrize("change", [bind_buffer, bind_row_of_weight])
def test_part_of_a_buffer_or_a_parameter_follows_it_on_a_new_rank(change: Change) -> None:
    source, target = trained(with_queue, change), with_queue()
    weight = target.model.linear.weight
    heal(source, target)
    for state in (source, target):
        with entered(state):
            state.model.all.add_(1)
            row = 0 if state.row is None else state.row.sum()
            (state.model.linear(state.model.head + 1) * (1 + row)).mean().backward()
            state.optimizer.step()
            state.commit()
    assert same(facts(target), facts(source))
    assert target.model.linear.weight is weight is target.optimizer.param_groups[0]["params"][0]


def test_part_comes_back_from_what_a_state_was_saved_as() -> None:
    """A restored state has no places of another rank's form either."""
    source, target = trained(empty, take_part), empty()
    core_of(target).load(copy.deepcopy(core_of(source).tree()), core_of(source).position)
    write_alike(source, target)


def test_expanded_value_stays_so_when_a_step_is_undone() -> None:
    state = trained(apart, take_expanded)
    with entered(state):
        state.buf[0] = 9
        core_of(state).rollback()
        assert state.part.stride() == (0, 1)
        state.buf[0] = 8
        assert state.part[1, 0] == 8


@pytest.mark.parametrize("size", [3, MUCH])
def test_expanded_buffer_stays_so_when_a_step_is_undone(size: int) -> None:
    """It is one row that is seen twice, and the row is put back."""
    net: Any = torch.nn.Module()
    net.register_buffer("row", torch.zeros(size))
    net.register_buffer("rows", net.row.expand(2, -1))
    state = State(model=net)
    with entered(state):
        net.row += 1
        state.commit()
        net.row += 1
        core_of(state).rollback()
        assert net.rows.stride() == (0, 1)
        assert net.rows.eq(1).all()
        net.row += 4
        assert net.rows.eq(5).all()


def test_value_has_the_order_of_its_elements_on_a_new_rank() -> None:
    """A sum over them rounds otherwise in another order."""
    source, target = trained(empty, lambda state: setattr(state, "part", odd())), empty()
    heal(source, target)
    assert target.part.stride() == source.part.stride() == (1, 300)
    assert torch.equal(target.part.sum(), source.part.sum())


def odd() -> torch.Tensor:
    return torch.rand(200, 300, generator=torch.Generator().manual_seed(1)).t()


def test_conjugate_of_another_value_is_refused() -> None:
    """It would be the very same tensor on a new rank, with the other's sign."""
    state = State(one=torch.ones(2, dtype=torch.complex64), other=None)
    with entered(state):
        state.other = state.one.conj()
        with pytest.raises(
            CallError, match=r"state\.other is a conjugate in the memory of another"
        ):
            state.commit()


def test_tensors_beside_each_other_in_one_memory_are_not_told() -> None:
    """As the weights of a recurrent network on a GPU."""
    whole = torch.zeros(6)
    state = State(one=None, other=None)
    with entered(state):
        state.one, state.other = whole[:3], whole[3:]
        state.commit()
        assert '"_views","[]"' in core_of(state).tree().skeleton


def test_state_of_an_older_version_is_taken_without_the_parts() -> None:
    source, target = trained(apart, take_part), apart()
    tree = core_of(source).tree()
    older = tree.skeleton.replace('"_views"', '"_older"')
    core_of(target).load(
        type(tree)(older, tuple(each.clone() for each in tree.tensors)), core_of(source).position
    )
    assert torch.equal(target.buf, source.buf)
    assert torch.equal(target.part, source.part)
