"""What no optimizer owns is what it was at the last commit."""

import weakref
from collections import Counter
from typing import Any

import pytest
import torch

from elasticd.tensors.value_copy import copy_value, restored
from elasticd.train.state import large_copy
from elasticd.train.state.commit_copy import CommitCopy


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """No buffer is copied before it was seen to change."""
    monkeypatch.setattr(large_copy, "EARLY_BYTES", 0)


def kept(module: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> CommitCopy:
    keep = CommitCopy()
    keep.bind({}, {}, [module], [optimizer] if optimizer else [])
    commit(keep)
    return keep


def commit(keep: CommitCopy) -> None:
    keep.copy(keep.collect())


def test_running_statistics_come_back_though_torch_does_not_count_their_changes() -> None:
    """Why small tensors are copied at every commit."""
    norm = torch.nn.BatchNorm1d(3)
    version = norm.running_mean._version  # type: ignore[union-attr]
    keep = kept(norm, torch.optim.SGD(norm.parameters()))
    before = [buffer.clone() for buffer in norm.buffers()]
    norm(torch.randn(5, 3))
    assert norm.running_mean._version == version  # type: ignore[union-attr]
    assert keep.put_back()
    assert all(torch.equal(a, b) for a, b in zip(before, norm.buffers(), strict=True))


class Buffers(torch.nn.Module):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.register_buffer("here", torch.zeros(length))
        self.register_buffer("later", None)
        self.register_buffer("local", torch.zeros(length), persistent=False)


@pytest.mark.parametrize("length", [4, 40_000])
def test_buffer_that_was_replaced_is_the_committed_one_again(length: int) -> None:
    """The same tensor, with what was in it; and none where there was none."""
    module: Any = Buffers(length)
    keep = kept(module)
    module.here.add_(1)
    module.local.add_(2)
    commit(keep)
    here = module.here
    here.add_(1)
    module.local.add_(1)
    module.here = torch.ones(length + 1)
    module.later = torch.ones(2)
    assert keep.put_back()
    assert module.here is here
    assert here.unique().tolist() == [1.0]
    assert module.local.unique().tolist() == [2.0]
    assert module.later is None


@pytest.mark.parametrize("length", [4, 40_000])
@pytest.mark.parametrize("replaced", ["first", "second"])
def test_buffer_of_two_modules_that_one_of_them_replaces_comes_back(
    length: int, replaced: str
) -> None:
    """In both: as one where they were one at the commit, and as two where they were two."""
    shared = torch.zeros(length)
    module: Any = torch.nn.ModuleDict({"first": torch.nn.Module(), "second": torch.nn.Module()})
    for part in module.values():
        part.register_buffer("here", shared)
    keep = kept(module)
    module[replaced].here = torch.ones(length)
    module.first.here.add_(1)
    module.second.here.add_(1)
    assert keep.put_back()
    assert module.first.here is module.second.here is shared
    assert not shared.any()

    module[replaced].here = torch.ones(length)
    commit(keep)
    for _ in range(2):
        module.first.here.add_(1)
        module.second.here.add_(1)
        module[replaced].here = torch.full((length,), 5.0)
        assert keep.put_back()
        assert all(
            part.here.unique().tolist() == [float(name == replaced)]
            for name, part in module.items()
        )


def test_large_buffer_of_two_modules_is_copied_once() -> None:
    module: Any = torch.nn.ModuleDict({"first": torch.nn.Module(), "second": torch.nn.Module()})
    shared = torch.zeros(40_000)
    for part in module.values():
        part.register_buffer("here", shared)
    keep = kept(module)
    for _ in range(3):
        shared.add_(1)
        commit(keep)
    assert sum(copied is not None for copied in keep._large._copies) == 1  # type: ignore[union-attr]


def test_buffer_of_another_shape_is_copied_and_put_back() -> None:
    """The copies' memory is taken anew."""
    module: Any = Buffers(4)
    keep = kept(module)
    module.here = torch.full((2, 3), 5.0)
    commit(keep)
    module.here.resize_(7).zero_()
    assert keep.put_back()
    assert module.here.shape == (2, 3)
    assert module.here.unique().tolist() == [5.0]


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_memory_that_a_script_puts_under_a_buffer_is_what_is_kept(shape: tuple[int, ...]) -> None:
    """`tensor.data = x` leaves the object and its shape; the copies follow to the new place."""
    module: Any = torch.nn.Module()
    module.register_buffer("here", torch.zeros(shape))
    keep = kept(module)
    module.here.data = torch.full(shape, 5.0)
    commit(keep)
    module.here.add_(1)
    assert keep.put_back()
    assert module.here.shape == shape
    assert module.here.unique().tolist() == [5.0]


def test_buffers_that_swap_their_lengths_in_place_come_back() -> None:
    """Their copies lie side by side, and together they are as long as before."""
    module: Any = torch.nn.Module()
    module.register_buffer("one", torch.full((2,), 1.0))
    module.register_buffer("two", torch.full((5,), 2.0))
    keep = kept(module)
    module.one.resize_(5).fill_(1)
    module.two.resize_(2)
    commit(keep)
    for buffer in module.buffers():
        buffer.zero_()
    assert keep.put_back()
    assert module.one.tolist() == [1.0] * 5
    assert module.two.tolist() == [2.0] * 2


@pytest.mark.filterwarnings("error")
def test_all_buffers_made_another_shape_in_place_come_back_in_it() -> None:
    """And torch does not warn of memory that was given another shape."""
    module: Any = Buffers(4)
    keep = kept(module)
    for buffer in module.buffers():
        buffer.data = buffer.data.view(4, 1) + 3
    commit(keep)
    for buffer in module.buffers():
        buffer.zero_()
    assert keep.put_back()
    assert [buffer.shape for buffer in module.buffers()] == [(4, 1)] * 2
    assert all(buffer.unique().tolist() == [3.0] for buffer in module.buffers())


def test_buffers_that_need_gradients_are_copied() -> None:
    """Nothing of a commit is recorded for a backward pass, also if it begins to be needed later."""
    module: Any = Buffers(4)
    keep = kept(module)
    module.here.requires_grad_()
    commit(keep)
    with torch.no_grad():
        module.here.add_(1)
    assert keep.put_back()
    assert torch.is_grad_enabled()
    assert module.here.unique().tolist() == [0.0]


def test_parameter_groups_are_the_committed_ones_again() -> None:
    """The same dicts with the values, the order and the parameters of the last commit."""
    one, two = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = torch.optim.Adam([one, two], lr=0.1)
    keep = kept(torch.nn.Module(), optimizer)
    (group,) = optimizer.param_groups
    for change in (
        lambda: group.update(lr=0.5),
        lambda: group.update(betas=[0.1, 0.2]),
        lambda: group["betas"].append(3),
        lambda: group["params"].reverse(),
        lambda: group.update(extra=1),
        lambda: group.pop("extra"),
    ):
        before = {**group, "betas": list(group["betas"]), "params": list(group["params"])}
        change()
        keep.put_back()
        assert list(group["betas"]) == before["betas"]
        assert all(a is b for a, b in zip(group["params"], before["params"], strict=True))
        assert group.keys() == before.keys() and group["lr"] == before["lr"]
        change()
        commit(keep)


def test_group_that_moves_to_the_next_optimizer_is_a_change() -> None:
    """The groups of all optimizers in one row are the same then."""
    first, moved, last = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    one = torch.optim.SGD([{"params": [first]}, {"params": [moved]}], lr=0.1)
    two = torch.optim.SGD([last], lr=0.1)
    keep = CommitCopy()
    keep.bind({}, {}, [torch.nn.Module()], [one, two])
    commit(keep)
    two.param_groups.insert(0, one.param_groups.pop())
    seen: list[str] = []
    groups = keep.groups(lambda: seen.append("changed"))
    keep.copy(keep.collect(groups))
    assert seen == ["changed"]
    assert keep.put_back()
    assert (len(one.param_groups), len(two.param_groups)) == (1, 2)


def test_value_that_a_state_dict_writes_is_the_one_of_this_commit() -> None:
    """What the script computes as it is asked belongs to the same step."""

    class Counting:
        def __init__(self, values: dict[str, Any]) -> None:
            self._values = values

        def state_dict(self) -> dict[str, Any]:
            self._values["asked"] += 1
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    values: dict[str, Any] = {"asked": 0}
    keep = CommitCopy()
    keep.bind(values, {"each": Counting(values)}, [torch.nn.Module()], [])
    commit(keep)
    values["asked"] = 7
    assert keep.put_back()
    assert values == {"asked": 1}


def test_buffer_whose_memory_was_freed_comes_back() -> None:
    """torch writes where the memory was, and the process would end in its recovery."""
    module = torch.nn.Module()
    module.register_buffer("mean", torch.ones(4))
    keep = kept(module)
    module.mean.untyped_storage().resize_(0)  # type: ignore[operator]
    assert keep.put_back()
    assert torch.equal(module.mean, torch.ones(4))  # type: ignore[arg-type]


@pytest.mark.usefixtures("no_room")
def test_still_large_tensors_cost_no_memory() -> None:
    """A frozen backbone is not doubled."""
    module: Any = Buffers(40_000)
    keep = kept(module)
    for _ in range(9):
        commit(keep)
    assert keep._large is not None
    assert keep._large._copies == [None, None]
    module.here.add_(1)
    commit(keep)
    assert sum(copy is not None for copy in keep._large._copies) == 1


def test_large_tensors_known_to_change_are_copied_from_the_start_after_a_rebinding() -> None:
    """Each generation binds anew, and its first step may be interrupted too."""
    module: Any = Buffers(40_000)
    keep = kept(module)
    module.here.add_(1)
    commit(keep)
    keep.bind({}, {}, [module], [])
    commit(keep)
    module.here.add_(1)
    assert keep.put_back()
    assert module.here.unique().tolist() == [1.0]


def test_change_that_is_not_counted_is_known_in_the_next_generation_too() -> None:
    """An average through `.data`: else each change of world would bring back its first commit."""
    module: Any = Buffers(40_000)
    keep = kept(module)
    for _ in range(4):
        module.here.data.add_(1)
        commit(keep)
    keep.bind({}, {}, [module], [])
    commit(keep)
    for _ in range(2):
        module.here.data.add_(1)
        commit(keep)
    module.here.data.add_(1)
    assert keep.put_back()
    assert module.here.unique().tolist() == [6.0]


def test_copy_of_a_counted_change_does_not_hide_later_ones() -> None:
    """An average that begins late: set with `copy_`, and then changed through `.data`."""
    module: Any = Buffers(40_000)
    keep = kept(module)
    for _ in range(8):
        commit(keep)
    module.here.copy_(torch.ones(40_000))
    for _ in range(3):
        commit(keep)
        module.here.data.add_(1)
    assert keep.put_back()
    assert module.here.unique().tolist() == [3.0]


def test_tensors_of_an_object_that_is_built_anew_are_let_go() -> None:
    """Else each generation would keep another average."""
    keep = CommitCopy()
    old: list[weakref.ref[torch.Tensor]] = []
    for _ in range(3):
        module: Any = Buffers(40_000)
        keep.bind({}, {}, [module], [])
        commit(keep)
        module.here.add_(1)
        commit(keep)
        old.append(weakref.ref(module.here))
    assert [each() is not None for each in old] == [False, False, True]


def test_buffer_that_a_forward_pass_changes_for_the_first_time_comes_back() -> None:
    """A queue that is used from some epoch on: all ranks wait for each other with it changed."""
    module: Any = Buffers(40_000)
    module.queue = torch.nn.Parameter(torch.zeros(40_000), requires_grad=False)
    keep = kept(module)
    for _ in range(2):
        for _ in range(3):
            commit(keep)
        assert keep._large is not None
        assert sum(copied is None for copied in keep._large._copies) == 1
        module.here.add_(1)
        module.local.data.add_(1)
        assert keep.put_back()
        assert not module.here.any() and not module.local.any()
        keep.bind({}, {}, [module], [])


@pytest.mark.usefixtures("no_room")
def test_change_that_cannot_be_taken_back_is_told() -> None:
    """The rank is then no source."""
    module: Any = Buffers(40_000)
    keep = kept(module)
    module.here.add_(1)
    assert not keep.put_back()


@pytest.mark.usefixtures("no_room")
def test_secret_change_before_the_first_copy_is_told() -> None:
    """By its checksum, at the commits where there is one."""
    module: Any = Buffers(40_000)
    keep = kept(module)
    module.here.data.add_(1)
    assert not keep.put_back()


def test_frozen_parameters_and_extra_state_come_back() -> None:
    """A module may have state that is no tensor."""

    class Extra(torch.nn.Linear):
        count = 0

        def get_extra_state(self) -> Any:
            return {"count": self.count}

        def set_extra_state(self, state: Any) -> None:
            self.count = state["count"]

    part = Extra(2, 2)
    keep = kept(part, torch.optim.SGD([part.bias]))
    weight = part.weight.detach().clone()
    part.count = 3
    with torch.no_grad():
        part.weight.zero_()
    assert keep.put_back()
    assert part.count == 0
    assert torch.equal(part.weight, weight)


def test_putting_back_twice_is_putting_back_once() -> None:
    """A failure during recovery begins it again."""
    value: Any = {"list": [1, (2, "x")], "tensor": torch.ones(2), "odd": Counter("aab")}
    copied = copy_value(value)
    tensor = value["tensor"]
    for _ in range(2):
        value["list"].append(3)
        tensor.zero_()
        value = restored(copied)
        assert value["list"] == [1, (2, "x")]
        assert value["tensor"] is tensor
        assert value["tensor"].tolist() == [1, 1]
        assert value["odd"] == Counter("aab")


def test_tensors_of_an_optimizer_stay_as_they_are() -> None:
    """Its undo brings them back, so a copy would be for nothing."""
    tensor = torch.ones(2)
    copied = copy_value({"mine": tensor}, {id(tensor)})
    tensor.zero_()
    assert restored(copied)["mine"].tolist() == [0, 0]


class Average:
    """As libraries keep one: lists of tensors, shown as they are."""

    def __init__(self, length: int) -> None:
        self.shadow = [torch.zeros(length), torch.zeros(2)]

    def state_dict(self) -> Any:
        return {"shadow": self.shadow, "of": self.shadow[0]}

    def load_state_dict(self, state: Any) -> None:
        self.shadow = state["shadow"]


def test_object_of_many_tensors_takes_memory_for_its_copies_once() -> None:
    """An averaged model would be cloned anew at each commit, beside the clone of the one before."""
    average = Average(1000)
    keep = CommitCopy()
    keep.bind({}, {"average": average}, (), ())
    commit(keep)
    memory = [each._copy for each in keep._copies._kept.values()]
    assert len(memory) == 2, "what stands in it twice is copied once"
    for _ in range(3):
        average.shadow[0].add_(1)
        commit(keep)
        assert all(
            each._copy is before
            for each, before in zip(keep._copies._kept.values(), memory, strict=True)
        )
    shadow = average.shadow[0]
    shadow.add_(1)
    keep.collect()  # A commit that is given up leaves the copies of the one before.
    average.shadow = [torch.ones(1)]
    assert keep.put_back()
    assert average.shadow[0] is shadow and set(shadow.tolist()) == {3.0}


def test_object_that_shows_other_tensors_each_time_is_copied_each_time() -> None:
    """And what was copied before is let go."""
    average = Average(10)
    keep = CommitCopy()
    keep.bind({}, {"average": average}, (), ())
    for count in range(3):
        average.shadow = [torch.full((10 + count,), float(count)), torch.zeros(2)]
        commit(keep)
        assert len(keep._copies._kept) == 2
    average.shadow[0].zero_()
    assert keep.put_back()
    assert average.shadow[0].tolist() == [2.0] * 12
