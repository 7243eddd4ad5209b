"""A shuffled order that is computed, not stored.

A keyed bijection on [0, length): position i of an epoch is sample `permutation[i]`, for any i at
any time, so that a run resumes at step ten million at once and a dataset of 10^9 samples needs no
list of indices.

Family: an unbalanced Feistel network over Z_a x Z_b with a * b just above the length. Each round
adds a keyed hash of one half to the other (M. Luby and C. Rackoff, "How to construct pseudorandom
permutations from pseudorandom functions", 1988); whatever lands outside of [0, length) is sent
through again until it lands inside, which is still a bijection (cycle walking; J. Black and
P. Rogaway, "Ciphers with arbitrary finite domains", 2002, who also add modulo a and b so that the
domain need not be a power of two: here fewer than one in sqrt(length) walks at all). Shuffling
data this way: R. Mitchell et al., "Bandwidth-optimal random shuffling for GPUs", 2022.

Quality: six rounds of a two-multiplication hash. Good enough that no simple statistic tells it from
a uniform shuffle (the tests try some); not a cipher, and of the length! orders few occur. Short
lengths are the weak spot of any Feistel network: with halves of three values, six rounds favour
some orders, hence more of them there; and where a and b are both odd, every round is an even
permutation, so that half of all orders cannot occur, hence an even a.

Rejected: `torch.randperm` (8 bytes per sample and seconds of start-up at 10^9), and an affine map
i -> a * i + b, which keeps neighbours at one fixed distance.
"""

import math
from hashlib import shake_256

import numpy as np
from numpy.typing import NDArray

__all__ = ["Permutation"]

Numbers = NDArray[np.uint64]

_ROUNDS = 6
_ROUNDS_SHORT = 24  # counted over all orders of 5 to 9: 8 are visibly too few, 16 nearly enough
_SHORT = 256  # from lengths of 30 on the tests that find four rounds guilty pass six
_KEY_BYTES = 8
_LENGTH_LIMIT = 2**62  # both halves are 2^31 at most
# Odd constants of 64 bits with well spread bits: the fraction of the golden ratio and of sqrt(3).
_FIRST = 0x9E3779B97F4A7C15
_SECOND = 0xBB67AE8584CAA73B
_FOLD = 29
_HASH_BITS = 31  # the uppermost ones of a product, which are the best; times a half: 62 bits
_DROP = 64 - _HASH_BITS
_MASK = 2**64 - 1
_FIRST_WORD, _SECOND_WORD = np.uint64(_FIRST), np.uint64(_SECOND)
_FOLD_WORD, _DROP_WORD, _BITS_WORD = np.uint64(_FOLD), np.uint64(_DROP), np.uint64(_HASH_BITS)


class Permutation:
    """A bijection on [0, length) that depends on (seed, epoch), in O(1) memory."""

    __slots__ = ("_keys", "_left", "_length", "_right")

    def __init__(self, length: int, seed: int, epoch: int) -> None:
        """Draw the order of an epoch.

        Raises: ValueError: the length is negative or above 2^62.
        """
        if not 0 <= length <= _LENGTH_LIMIT:
            raise ValueError(f"a permutation has a length of 0 to 2^62, not {length}")
        self._length = length
        self._left = math.isqrt(max(length - 1, 0)) + 1
        self._left += self._left % 2
        self._right = max(-(-length // self._left), 1)
        rounds = _ROUNDS if length > _SHORT else _ROUNDS_SHORT
        digest = shake_256(f"{seed}:{epoch}".encode()).digest(rounds * _KEY_BYTES)
        self._keys = tuple(
            int.from_bytes(digest[at : at + _KEY_BYTES], "little")
            for at in range(0, len(digest), _KEY_BYTES)
        )

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: int) -> int:
        """Return the index at a position."""
        if not 0 <= position < self._length:
            raise IndexError(f"position {position} is not in [0, {self._length})")
        index = self._turn(position)
        while index >= self._length:
            index = self._turn(index)
        return index

    def block(self, start: int, stop: int) -> list[int]:
        """Return the indices at positions [start, stop), many times faster than one by one.

        Raises: IndexError: the positions are not all within the epoch.
        """
        if not 0 <= start <= stop <= self._length:
            raise IndexError(f"[{start}, {stop}) is not within [0, {self._length})")
        return self.blocks(start, stop - start, 0, 1)[0] if start < stop else []

    def blocks(self, start: int, count: int, stride: int, number: int) -> list[list[int]]:
        """Return the indices at `count` positions from `start` on, and `stride` later, and so on.

        `number` times in all. The more at once the better: a call costs as much as some hundred
        indices.
        """
        firsts = np.arange(number, dtype=np.uint64) * np.uint64(stride) + np.uint64(start)
        positions: Numbers = np.add.outer(firsts, np.arange(count, dtype=np.uint64))
        indices: list[list[int]] = self._at(positions).tolist()
        return indices

    def _at(self, positions: Numbers) -> Numbers:
        indices = self._turn_all(positions)
        while int(indices.max()) >= self._length:
            outside = indices >= self._length
            indices[outside] = self._turn_all(indices[outside])
        return indices

    def _turn(self, value: int) -> int:
        left, right = divmod(value, self._right)
        for even, odd in zip(self._keys[::2], self._keys[1::2], strict=True):
            left = (left + _mix(right, even, self._left)) % self._left
            right = (right + _mix(left, odd, self._right)) % self._right
        return left * self._right + right

    def _turn_all(self, values: Numbers) -> Numbers:
        left = values // np.uint64(self._right)
        right = values - left * np.uint64(self._right)
        memory = np.empty_like(left), np.empty_like(left)
        for even, odd in zip(self._keys[::2], self._keys[1::2], strict=True):
            _add_mixed(left, right, even, self._left, memory)
            _add_mixed(right, left, odd, self._right, memory)
        left *= np.uint64(self._right)
        left += right
        return left


def _mix(value: int, key: int, limit: int) -> int:
    """Hash one number to [0, limit)."""
    mixed = ((value ^ key) * _FIRST) & _MASK
    mixed = ((mixed ^ (mixed >> _FOLD)) * _SECOND) & _MASK
    return ((mixed >> _DROP) * limit) >> _HASH_BITS


def _add_mixed(
    sums: Numbers, values: Numbers, key: int, limit: int, memory: tuple[Numbers, Numbers]
) -> None:
    """Add `_mix` of the values to the sums modulo the limit, in place; the sums are below it.

    Without memory of its own: to take some for each operation would cost as much as they do.
    """
    mixed, other = memory
    modulus = np.uint64(limit)
    np.bitwise_xor(values, np.uint64(key), out=mixed)
    np.multiply(mixed, _FIRST_WORD, out=mixed)
    np.right_shift(mixed, _FOLD_WORD, out=other)
    np.bitwise_xor(mixed, other, out=mixed)
    np.multiply(mixed, _SECOND_WORD, out=mixed)
    np.right_shift(mixed, _DROP_WORD, out=mixed)
    np.multiply(mixed, modulus, out=mixed)
    np.right_shift(mixed, _BITS_WORD, out=mixed)
    np.add(sums, mixed, out=sums)
    # Where a sum is still below the modulus, the difference wraps and is huge. `%` costs twice.
    np.subtract(sums, modulus, out=mixed)
    np.minimum(sums, mixed, out=sums)
