"""Which places of a state share a tensor, and how another rank's state is made to share alike.

A script may begin with one tensor in two places and put another tensor into one of them later, or
the reverse. A new process has what the script begins with. If it filled that with the values of
both places, the second would overwrite the first; and of two places that are one elsewhere, only
one would change in training. So a state whose places share otherwise than at the script's beginning
names the places that are one tensor, and a rank that takes the state over makes them share before
it fills them. Tensors that have only a part of their memory in common (`buffer[:3]`, or a tensor
that is expanded or transposed) get a new memory there, in which they lie as on the source. The same
goes for values that require a gradient: no bytes of a tensor say so.

Parameters that an optimizer trains stay where they are: a script that replaces one of these in its
module is refused (`check_trained`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from elasticd.errors import CallError
from elasticd.tensors.local_shard import memory_of
from elasticd.tensors.tensor_bytes import write_into

__all__ = [
    "Ties",
    "View",
    "check_leaves",
    "check_trained",
    "retied",
    "tensors_within",
    "ties_of",
    "trained_places",
]


class View(NamedTuple):
    """Where tensors with the very same elements lie in a memory."""

    dtype: str
    start_bytes: int
    shape: list[int]
    strides: list[int]
    paths: list[str]


class Ties(NamedTuple):
    """Plain values for JSON, which makes lists of the tuples."""

    shared: list[list[list[str]]]
    """The places of each memory that has several of them. Of each memory those that have the very
    same elements stand together."""
    trained: list[str]
    """The places among the plain values of what optimizers train."""
    views: list[list[View]]
    """The memories in which tensors overlap that are not one, by all that lies in them."""
    leaves: dict[str, list[bool]]
    """The values that are Parameters (the first) or require a gradient (the second)."""


class _Home(NamedTuple):
    """A place in a module's own dict."""

    home: dict[str, Any]
    key: str


_PLAIN = [False, False]  # What `Ties.leaves` has of a value that it does not list.

LARGEST_ELEMENT_BYTES = 16
"""A memory begins at a multiple of these, so that each element in it does of its own size."""

Values = dict[str, Any]
Modules = Mapping[str, torch.nn.Module]


def ties_of(values: Values, modules: Modules, trained: Collection[int]) -> Ties:
    """Return which places of plain values and modules share memory; nothing else is listed.

    `trained` are the ids of what optimizers own.

    Raises: CallError: a value has a graph, or is a conjugate of another one.
    """
    found: dict[int, dict[object, list[str]]] = {}
    spans: list[_Span] = []
    for path, tensor in _tensors(values, modules):
        here = memory_of(tensor)
        # Others cannot be sent, and are refused elsewhere.
        is_plain = type(here).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        if (
            is_plain
            and not here.is_nested
            and here.numel()
            and here.layout is torch.strided
            and not here.is_meta
        ):
            memory = found.setdefault(here.untyped_storage().data_ptr(), {})
            memory.setdefault(_elements(here), []).append(path)
            spans.append(_span(path, here))
    shared = (list(memory.values()) for memory in found.values())
    return Ties(
        [each for each in shared if len(each) > 1 or len(each[0]) > 1],
        [path for path, tensor in _tensors(values, {}) if id(tensor) in trained],
        _views(spans, values),
        _leaves(values, modules, trained),
    )


def retied(values: Values, modules: Modules, trained: Collection[int], wanted: Ties) -> bool:
    """Let the places share as `wanted` says; return whether any had to change.

    What `trained` names by its id stays in its module.
    """
    own = ties_of(values, modules, trained)
    if own == wanted:
        return False
    homes = {path: home for path, home, _ in _homes(modules)}
    now = dict(_tensors(values, modules))
    stays = {path for path in homes if id(now[path]) in trained}
    first = dict.fromkeys(homes, 1) | dict.fromkeys((*wanted.trained, *stays), 0)
    swap: dict[str, torch.Tensor] = {}
    for view in (each for memory in own.views if memory not in wanted.views for each in memory):
        alone = memory_of(now[view.paths[0]]).detach().clone(memory_format=torch.contiguous_format)
        for path in view.paths:
            memory_of(now[path]).data = alone
    there = {path: same for same in _same(wanted) for path in same}
    for same in _same(own):
        head, *others = sorted(same, key=lambda path: first.get(path, 2))
        for path in others:
            if head not in there.get(path, ()):
                swap[path] = _apart(now[path])
    for same in _same(wanted):
        here = sorted(filter(now.__contains__, same), key=lambda path: first.get(path, 2))
        for path in here[1:]:
            head_tensor, tensor = swap.get(here[0], now[here[0]]), swap.get(path, now[path])
            # A tensor that shares the memory of a trained one, as its detach() does, has no
            # gradient there; what is the trained one itself is named, or a module's parameter.
            is_alias = id(head_tensor) in trained and not (
                path in wanted.trained or (path in homes and isinstance(tensor, torch.nn.Parameter))
            )
            is_other_kind = id(head_tensor) in trained and is_alias == (tensor is head_tensor)
            if _fits(head_tensor, tensor, is_apart=not is_other_kind):
                swap[path] = head_tensor.detach() if is_alias else head_tensor
    for path in swap.keys() & homes.keys() - stays:
        homes[path].home[homes[path].key] = swap[path]
    for name, value in values.items():
        values[name] = _swapped(name, value, swap)
    now = dict(_tensors(values, modules))
    for memory in wanted.views:
        if memory not in own.views:
            _lay_out(memory, now)
    has_other_leaves = _set_leaves(values, modules, trained, wanted.leaves)
    return has_other_leaves or own.views != wanted.views or bool(swap.keys() - stays)


_Span = tuple[int, int, str, torch.Tensor]
"""The addresses at which a tensor begins and ends, and its path."""

Place = tuple[str, dict[str, Any], str, torch.Tensor]
"""The path of a place, the dict and the key that it is, and what stood there."""


def trained_places(modules: Modules, trained: Collection[int]) -> list[Place]:
    """Return the places in modules of what optimizers own."""
    return [(path, *home, each) for path, home, each in _homes(modules) if id(each) in trained]


def check_trained(places: list[Place]) -> None:
    """Refuse a trained tensor that was replaced; the places are those of `trained_places`.

    Raises: CallError: a place holds another tensor; the message names it.
    """
    for path, home, key, tensor in places:
        if (now := home.get(key)) is not tensor and now is not None:
            raise CallError(
                f"state.{path} is another tensor in train than the one that its optimizer trains, "
                "so a new rank would train the one and the others the other: bind it before the "
                "optimizer is made, or write the values into it (under torch.no_grad(), copy_)."
            )


def check_leaves(path: str, value: Any) -> None:
    """Refuse a value with the graph of a backward pass: no other rank would have that graph.

    Raises: CallError: the message names the place.
    """
    for place, tensor in tensors_within(path, value):
        if tensor.requires_grad and not tensor.is_leaf:
            raise CallError(
                f"{place} was computed from what requires a gradient and still has the graph of "
                "that, which no rank would have after a failure: keep its detach() in the state."
            )


def _homes(modules: Modules) -> Iterator[tuple[str, _Home, torch.Tensor]]:
    for name, module in modules.items():
        for prefix, part in module.named_modules():
            for home in (part._parameters, part._buffers):
                for key, tensor in home.items():
                    if tensor is not None:
                        path = ".".join(filter(None, (name, prefix, key)))
                        yield path, _Home(home, key), tensor


def _tensors(values: Values, modules: Modules) -> Iterator[tuple[str, torch.Tensor]]:
    for path, _, tensor in _homes(modules):
        yield path, tensor
    for name, value in values.items():
        yield from tensors_within(name, value)


def tensors_within(path: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a plain value with their places."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_within(f"{path}.{key}", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from tensors_within(f"{path}[{index}]", item)


def _swapped(path: str, value: Any, swap: Mapping[str, torch.Tensor]) -> Any:
    """Return the value with other tensors in it; lists and dicts stay the same objects."""
    if isinstance(value, torch.Tensor):
        return swap.get(path, value)
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = _swapped(f"{path}.{key}", item, swap)
    elif isinstance(value, list):
        value[:] = [_swapped(f"{path}[{at}]", item, swap) for at, item in enumerate(value)]
    elif type(value) is tuple:
        items = tuple(_swapped(f"{path}[{at}]", item, swap) for at, item in enumerate(value))
        is_same = all(one is other for one, other in zip(items, value, strict=True))
        return value if is_same else items
    return value


def _free(
    values: Values, modules: Modules, trained: Collection[int]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the values that stand in no module and that no optimizer trains."""
    others = {id(tensor) for _, _, tensor in _homes(modules)}
    for path, tensor in _tensors(values, {}):
        if id(tensor) not in trained and id(tensor) not in others:
            yield path, tensor


def _leaves(values: Values, modules: Modules, trained: Collection[int]) -> dict[str, list[bool]]:
    for name, value in values.items():
        check_leaves(f"state.{name}", value)
    found = ((path, _kind(tensor)) for path, tensor in _free(values, modules, trained))
    return {path: kind for path, kind in found if any(kind)}


def _set_leaves(
    values: Values, modules: Modules, trained: Collection[int], leaves: Mapping[str, list[bool]]
) -> bool:
    """Let the values require gradients as `leaves` says; return whether any had to change."""
    made: dict[tuple[int, bool], torch.Tensor] = {}
    swap: dict[str, torch.Tensor] = {}
    has_changed = False
    for path, tensor in _free(values, modules, trained):
        is_parameter, needs_gradient = leaves.get(path, _PLAIN)
        if isinstance(tensor, torch.nn.Parameter) != is_parameter:
            other = torch.nn.Parameter(tensor.data, False) if is_parameter else tensor.detach()
            tensor = swap[path] = made.setdefault((id(tensor), is_parameter), other)
        can_have_one = tensor.is_floating_point() or tensor.is_complex()  # Else it is yet to load.
        if tensor.requires_grad != (needs_gradient and can_have_one):
            tensor.requires_grad_(not tensor.requires_grad)
            has_changed = True
    for name, value in values.items():
        values[name] = _swapped(name, value, swap)
    return has_changed or bool(swap)


def _kind(tensor: torch.Tensor) -> list[bool]:
    return [isinstance(tensor, torch.nn.Parameter), tensor.requires_grad]


def _elements(tensor: torch.Tensor) -> object:
    """Return what two tensors of one memory have in common if they have the same elements."""
    return tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()


def _same(ties: Ties) -> Iterator[list[str]]:
    """Yield the places of each tensor that has several of them, or others in its memory."""
    return (same for memory in ties.shared for same in memory)


def _fits(one: torch.Tensor, other: torch.Tensor, *, is_apart: bool) -> bool:
    """Return whether they are two tensors of one form, and if asked for of two memories."""
    if (one.dtype, one.shape, one.device) != (other.dtype, other.shape, other.device):
        return False
    return not is_apart or memory_of(one).data_ptr() != memory_of(other).data_ptr()


def _apart(tensor: torch.Tensor) -> torch.Tensor:
    apart = tensor.detach().clone()
    return (
        torch.nn.Parameter(apart, requires_grad=tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter)
        else apart
    )


def _span(path: str, tensor: torch.Tensor) -> _Span:
    shape, first, size = tensor.shape, tensor.data_ptr(), tensor.element_size()
    if tensor.is_contiguous():
        return first, first + tensor.numel() * size, path, tensor
    return first, first + (_last(shape, tensor.stride()) + 1) * size, path, tensor


def _views(spans: list[_Span], values: Values) -> list[list[View]]:
    """Return what `Ties.views` has; also each value alone whose elements are not in their order.

    Addresses differ between processes of one script, so the order is that of the places.

    Raises: CallError: one of the tensors is a conjugate that was not written out.
    """
    memories: list[list[_Span]] = []
    end = 0
    for span in sorted(spans, key=itemgetter(0)):
        if span[0] < end:
            memories[-1].append(span)
        else:
            memories.append([span])
        end = max(end, span[1])
    found = []
    for memory in memories:
        is_contiguous = memory[0][-1].is_contiguous()
        if len(memory) > 1 or not is_contiguous:
            views = _views_in(memory)
            # A sum over a value in another order rounds otherwise.
            is_reordered = not is_contiguous and any(
                path.partition(".")[0].partition("[")[0] in values for _, _, path, _ in memory
            )
            if len(views) > 1 or is_reordered or _is_folded(views[0]):
                found.append(views)
    return sorted(found, key=lambda views: views[0].paths)


def _views_in(memory: list[_Span]) -> list[View]:
    start = memory[0][0] // LARGEST_ELEMENT_BYTES * LARGEST_ELEMENT_BYTES
    views: dict[object, View] = {}
    for first, _, path, tensor in memory:
        if len(memory) > 1 and (tensor.is_conj() or tensor.is_neg()):
            raise CallError(
                f"state.{path} is a conjugate in the memory of another tensor of the state, which "
                "would be the same numbers on a new rank: keep resolve_conj().resolve_neg() of it."
            )
        shape, strides = list(tensor.shape), list(tensor.stride())
        view = View(str(tensor.dtype), first - start, shape, strides, [])
        views.setdefault(str(view), view).paths.append(path)
    for view in views.values():
        view.paths.sort()
    return sorted(views.values(), key=lambda view: view.paths)


def _last(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many elements after the first one the last one stands."""
    return sum((size - 1) * step for size, step in zip(shape, strides, strict=True))


def _is_folded(view: View) -> bool:
    """Return whether several elements may stand in one place, as in an expanded tensor."""
    reach = 0
    for step, size in sorted(zip(view.strides, view.shape, strict=True)):
        if size > 1 and step <= reach:
            return True
        reach += (size - 1) * step
    return False


def _lay_out(memory: list[View], now: Mapping[str, torch.Tensor]) -> None:
    """Put tensors into one new memory with their values; not if one is to be loaded first."""
    here: dict[str, torch.Tensor] = {}
    size = 0
    for view in memory:
        for path in view.paths:
            tensor = memory_of(now[path]) if path in now else None
            if tensor is None or (str(tensor.dtype), list(tensor.shape)) != (
                view.dtype,
                view.shape,
            ):
                return
            here[path] = tensor
            end = (_last(view.shape, view.strides) + 1) * tensor.element_size()
            size = max(size, view.start_bytes + end)
    first = here[memory[0].paths[0]]
    new = torch.empty(size, dtype=torch.uint8, device=first.device).untyped_storage()
    for view in memory:
        tensor = here[view.paths[0]].detach()
        placed = torch.empty(0, dtype=tensor.dtype, device=first.device)
        placed.set_(new, view.start_bytes // tensor.element_size(), view.shape, view.strides)
        write_into(placed, tensor)
        for path in view.paths:
            here[path].data = placed
