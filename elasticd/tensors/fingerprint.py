"""Describes a rank's parameters in a few numbers, so that ranks can see whether theirs are equal.

A hash, or on a GPU a sum of all words, is computed where a tensor is, at the speed of its memory,
and differs where one bit does. That does not say how far two tensors are apart: two kinds of
processor round differently, and ranks that train on gradients of their own differ in everything. A
second measure shows that. The sums of the elements of two tensors differ by about the length of the
difference between them (exactly so in the mean, if that has no direction), which is compared with
the length of one.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
import xxhash

from elasticd.tensors.local_shard import has_replicas, local_part
from elasticd.tensors.tensor_bytes import TensorBytes, is_plain

__all__ = [
    "ROUNDING",
    "Measure",
    "comparable",
    "digest",
    "is_near",
    "is_row_major",
    "measured",
    "owned_tensors",
    "placed_numbers_of",
]

ROUNDING = 1e-3
"""How far a tensor may lie from another rank's, relative to its length. A step of a usual learning
rate with gradients of its own is beyond it, and the moments of an optimizer are far beyond."""

_WORD_BYTES = 8
_AT_ONCE = 1 << 20
"""How many elements are converted to double precision at a time: 8 MB."""

_PIECE = 1 << 20
"""How many words are mixed at a time: 8 MB."""

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIXER = 0xBF58476D1CE4E5B9 - (1 << 64)
"""The odd factors of splitmix64 (Steele, Lea and Flood 2014), as signed numbers."""


@dataclass(frozen=True, slots=True)
class Measure:
    """The sum of a tensor's elements, and its length."""

    total: float
    length: float


def owned_tensors(
    optimizers: Iterable[torch.optim.Optimizer], names: Mapping[int, str] | None = None
) -> dict[str, torch.Tensor]:
    """Return the parameters of these optimizers and what they keep for each, in a fixed order.

    `names` of parameters by their ids; one that has none is called by its number.
    """
    found: dict[str, torch.Tensor] = {}
    for number, optimizer in enumerate(optimizers):
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        for place, parameter in enumerate(parameters):
            unnamed = f"parameter {place} of {type(optimizer).__name__} {number}"
            name = (names or {}).get(id(parameter), unnamed)
            found[name] = parameter.detach()
            for key, value in sorted(optimizer.state.get(parameter, {}).items()):
                if isinstance(value, torch.Tensor):
                    other = f" of optimizer {number}" if number else ""
                    found[f"{name} ({key}{other})"] = value
    return found


def comparable(
    tensors: Mapping[str, torch.Tensor],
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return what all ranks have, and the parts that some others have too, named by their place.

    What no other rank has is left out.
    """
    whole: dict[str, torch.Tensor] = {}
    parts: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.is_meta:
            continue
        part = local_part(tensor)
        if part.is_plain_tensor:
            whole[name] = part.tensor
        elif has_replicas(tensor):
            parts[f"{name} from {part.origin}"] = part.tensor
    return whole, parts


@torch.no_grad()
def digest(tensors: Mapping[str, torch.Tensor], *, by_rows: bool = False) -> str:
    """Return a text that differs where a bit of a tensor, or a name, does.

    With `by_rows` it does not depend on the order in which the host's memory has the elements: a
    rank that was given its state has the moments of a channels_last model row by row. Without it
    two tensors of the host differ if that order does, and ranks of older versions send only that.
    """
    numbers = [_number(tensor, by_rows=by_rows) for tensor in tensors.values()]
    # One wait for each device, and not for each tensor.
    by_device: dict[torch.device, list[int]] = {}
    for place, number in enumerate(numbers):
        if isinstance(number, torch.Tensor):
            by_device.setdefault(number.device, []).append(place)
    for places in by_device.values():
        found = torch.stack([torch.as_tensor(numbers[place]) for place in places]).tolist()
        for place, number in zip(places, found, strict=True):
            numbers[place] = number
    text = json.dumps(list(zip(tensors, numbers, strict=True)))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


@torch.no_grad()
def placed_numbers_of(tensors: Iterable[torch.Tensor]) -> list[int | torch.Tensor]:
    """Return for each a hash of its bytes; for what cannot be hashed where it stands a number on
    its device, for which nobody waits here, and in which each word's place counts too.

    A plain sum of words (see `digest`, which ranks of two versions compare) stays what it is if
    rows change places, or an even number of float64 their signs.
    """
    factors: dict[torch.device, torch.Tensor] = {}
    found: list[int | torch.Tensor] = []
    for tensor in tensors:
        if is_plain(tensor):
            found.append(_number(tensor, by_rows=True))
            continue
        if tensor.device not in factors:
            factors[tensor.device] = _factors(tensor.device)
        found.append(_placed_sum(tensor, factors[tensor.device]))
    return found


@torch.no_grad()
def measured(tensors: Mapping[str, torch.Tensor]) -> dict[str, Measure]:
    """Measure each; several passes over the memory."""
    found = {}
    for name, tensor in tensors.items():
        total = square = 0.0
        for piece in torch.split(_flat(tensor), _AT_ONCE):
            exact = piece.double()
            total += float(exact.sum())
            square += float(exact.dot(exact))
        found[name] = Measure(total, math.sqrt(square))
    return found


def is_near(one: Measure, other: Measure) -> bool:
    """Return whether rounding alone can have made the difference."""
    lengths = one.length, other.length
    if not all(map(math.isfinite, lengths)):
        return not any(map(math.isfinite, lengths))  # Lost on both: that is said elsewhere.
    apart = max(abs(one.total - other.total), abs(one.length - other.length))
    return apart <= ROUNDING * max(lengths)


def is_row_major(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether `digest` gives the same with and without `by_rows`."""
    return all(each.device.type != "cpu" or is_plain(each) for each in tensors)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return all elements in one dimension, as numbers that have a sum."""
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return real.detach().reshape(-1)


def _number(tensor: torch.Tensor, *, by_rows: bool) -> int | torch.Tensor:
    """Return a hash of what is in the host's memory; for another device the sum, as a
    number there.
    """
    if is_plain(tensor) or (by_rows and tensor.device.type == "cpu"):
        return xxhash.xxh3_64_intdigest(TensorBytes(tensor).read(0, tensor.nbytes))
    return _sum_of_words(tensor)


def _sum_of_words(tensor: torch.Tensor) -> torch.Tensor:
    """Return the sum of the memory's words of eight bytes, without its carry."""
    if not tensor.numel():
        return torch.zeros((), dtype=torch.int64, device=tensor.device)
    raw = _flat(tensor).view(torch.uint8)
    is_aligned = raw.storage_offset() % _WORD_BYTES == 0
    count = len(raw) // _WORD_BYTES * _WORD_BYTES if is_aligned else 0
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    if count:
        total = raw[:count].view(torch.int64).sum()
    for number, piece in enumerate(torch.split(raw[count:], _AT_ONCE), 1):
        total = total + number * piece.sum(dtype=torch.int64)
    return total


def _factors(device: torch.device) -> torch.Tensor:
    """Return an odd pseudo-random factor for each place of a piece."""
    factors = torch.arange(1, _PIECE + 1, device=device).mul_(_GOLDEN)
    factors ^= factors >> 29
    factors *= _MIXER
    factors ^= factors >> 32
    return factors.bitwise_or_(1)


def _placed_sum(tensor: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Return a sum of the memory's words in which each has a factor of its own."""
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    raw = _flat(tensor).view(torch.uint8)
    is_aligned = raw.storage_offset() % _WORD_BYTES == 0
    count = len(raw) // _WORD_BYTES * _WORD_BYTES if is_aligned else 0
    for part in (raw[:count].view(torch.int64), raw[count:]):
        for piece in torch.split(part, _PIECE) if len(part) else ():
            words = piece.long()
            # A product keeps the change of a high bit high, where an even number of them cancel.
            mixed = (words >> 32).bitwise_xor_(words).mul_(factors[: len(words)])
            total = total * _GOLDEN + mixed.sum()
    return total
